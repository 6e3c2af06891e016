"""The user's module and data: how they are created, and the loaders of this rank, each a slice of one of the user's."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities import CombinedLoader
from torch.utils.data import IterableDataset

from lockstep.base.config_error import ConfigError, config_error
from lockstep.base.precision import dtype_of
from lockstep.base.random_state import seed_all, seeded
from lockstep.base.structures import map_tensors
from lockstep.engine.loaders import BatchShare, RankLoader, RankSlice, is_plain
from lockstep.engine.loaders.map_loader import MapLoader
from lockstep.engine.loaders.stream_loader import StreamLoader
from lockstep.launch.topology import RankContext
from lockstep.plan import schemas
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.target import KEY
from lockstep.plan.step_plan import STAGES
from lockstep.plan.targets.kinds import overrides, replace_method
from lockstep.plan.targets.locate import create
from lockstep.runs.checkpoint.content import Progress

METHOD = {stage: f"{stage}_dataloader" for stage in STAGES}
STEP = {"train": "training_step", "val": "validation_step", "test": "test_step"}
TO_DEVICE = "transfer_batch_to_device"
TRANSFER_HOOKS = ("on_before_batch_transfer", TO_DEVICE, "on_after_batch_transfer")


def create_module(choice: schemas.Module, seed: int) -> Any:
    """Create the module, its weights drawn before anything else: the same on every rank."""
    seed_all(seed)
    return create("model", choice.call)


def create_data(choice: schemas.Data, seed: int) -> Any:
    """Create the data module under the run's seed, so that it draws the same on every rank."""
    owner = seeded(seed, lambda: create(choice.key, choice.call))
    if not isinstance(owner, pl.LightningDataModule):
        reason = f"it makes a {type(owner).__name__}, and not a LightningDataModule"
        hint = "the path of one, or lockstep.datamodules.Datasets with a Dataset of yours as `dataset`"
        raise config_error(f"data.{KEY}", choice.path, reason, hint)
    return owner


class LoaderSource:
    """The user's loaders.

    owner: the LightningDataModule, or the LightningModule, whose methods return them.
    create: these methods by stage.
    """

    def __init__(self, choice: schemas.Data, module: Any, seed: int, batch_size: int | None, data_module: Any) -> None:
        self.choice, self.module, self.seed, self.batch_size = choice, module, seed, batch_size
        self.data_module, self.owner = data_module, module if data_module is None else data_module
        methods = {stage: getattr(self.owner, name) for stage, name in METHOD.items() if overrides(self.owner, name)}
        self.create: dict[str, Callable[[], Any]] = methods

    def has(self, stage: str) -> bool:
        """Whether there is a loader for this stage, and a step of the module that takes it."""
        return stage in self.create and overrides(self.module, STEP[stage])

    def loaders(self, stage: str, rank_slice: RankSlice) -> list[RankLoader]:
        """Return loaders of this rank's slices of the user's.

        A loader of an evaluation has the batch size of a single process: a LightningDataModule may divide its batch
        size by the number of ranks.
        """
        user_loaders = self._user_loaders(stage)
        sizes: Sequence[int | None] = [self.batch_size]
        if stage != "train":
            sizes = getattr(self.choice, f"{stage}_batch_sizes")
            sizes = sizes if len(sizes) == len(user_loaders) else [None] * len(user_loaders)
        loaders: list[RankLoader] = []
        for loader, size in zip(user_loaders, sizes, strict=True):
            has_index = is_plain(loader) and not isinstance(loader.dataset, IterableDataset)
            kind: Any = MapLoader if has_index and loader.batch_sampler is not None else StreamLoader
            loaders.append(kind(loader, rank_slice, self.seed, stage == "train", size or None))
        return loaders

    def _user_loaders(self, stage: str) -> list[Any]:
        """Return the loaders of a stage; none if the method returns None."""
        returned = seeded(self.seed, self.create[stage])
        loaders = [*returned.values()] if isinstance(returned, Mapping) else [] if returned is None else returned
        loaders = [*loaders] if isinstance(loaders, list | tuple) else [loaders]
        loaders = [each.loader if isinstance(each, RankLoader) else each for each in loaders]  # self.val_dataloader()
        if isinstance(returned, CombinedLoader) or (stage == "train" and len(loaders) != 1):
            kind = "a CombinedLoader" if isinstance(returned, CombinedLoader) else f"{len(loaders)} loaders at a time"
            raise ConfigError(
                f"{type(self.owner).__name__}.{METHOD[stage]}: it returns {kind}, and only single loaders are divided "
                f"among ranks; return {'one loader' if stage == 'train' else 'a list of loaders'}."
            )
        return loaders


class RankData:
    """The loaders of one rank by stage (train, val, test), in place of the user's; and how a batch gets to the device.

    begin: where training begins, which may be within an epoch.
    """

    def __init__(self, plan: Plan, context: RankContext, source: LoaderSource, begin: Progress) -> None:
        self.plan, self.source, self.module, self.begin = plan, source, source.module, begin
        self.slice = RankSlice(plan.data_rank(context.rank), plan.data_size, plan.strategy.virtual_ranks(plan))
        self.device: torch.device = plan.strategy.devices(plan)[0]
        self.by_stage: dict[str, list[RankLoader]] = {}
        for owner in (self.module, source.data_module):
            if hasattr(owner, "setup"):  # it draws under the run's seed, the same on every rank
                replace_method(owner, "setup", lambda setup, stage=None: seeded(plan.seed, lambda: setup(stage)))
                replace_method(owner, "prepare_data", lambda _: None)  # it was called before any rank started
        for stage in STAGES:
            if self.runs(stage):
                object.__setattr__(source.owner, METHOD[stage], lambda stage=stage: self._dataloader(stage))

    def runs(self, stage: str) -> bool:
        """Whether there is a loader and a step for a stage, and the plan leaves it some batches."""
        return self.source.has(stage) and getattr(self.plan.trainer, f"limit_{stage}_batches") != 0

    def loaders(self, stage: str) -> list[RankLoader]:
        if stage not in self.by_stage:
            plan, training = self.plan, stage == "train"
            self.by_stage[stage] = loaders = self.source.loaders(stage, self.slice)
            for loader in loaders:
                loader.begin = (self.begin.epochs, self.begin.batch)
                loader.set_epoch(self.begin.epochs if training else 0)
                loader.accumulate = plan.accumulate_grad_batches
                loader.pads_ranks = training or plan.strategy.shards_weights(plan)
                loader.limit = getattr(plan.trainer, f"limit_{stage}_batches")
                if training:
                    loader.fixed = plan.trainer.overfit_batches > 0
                    loader.drop_last = loader.drop_last or plan.drop_last
                else:
                    loader.evaluation_batch = getattr(self.source.owner, "evaluation_batch", 1)
        return self.by_stage[stage]

    def _dataloader(self, stage: str) -> Any:
        """Return what `train_dataloader` and its like return: a loader, or a list of several."""
        if self.plan.trainer.reload_dataloaders_every_n_epochs:  # Lightning asks whenever new ones are due
            self.by_stage.pop(stage, None)
        loaders = self.loaders(stage)
        return loaders[0] if len(loaders) == 1 else loaders

    def next_share(self, stage: str, loader: int = 0) -> BatchShare:
        """Return this rank's share of the next batch, in the order in which the loader has yielded them."""
        return self.by_stage[stage][loader].shares.popleft()

    def transfer(self, batch: Any, loader: int = 0) -> Any:
        """Move a batch by the hooks of the module or its LightningDataModule; with 64-true, floats become float64."""
        if dtype_of(self.plan) == torch.float64:  # otherwise hooks get floats as the loader has them, as by Lightning
            batch = map_tensors(lambda each: each.double() if each.is_floating_point() else each, batch)
        for name, hook in self._transfer_hooks.items():
            batch = hook(batch, self.device, loader) if name == TO_DEVICE else hook(batch, loader)
        return batch

    @cached_property
    def _transfer_hooks(self) -> dict[str, Callable[..., Any]]:
        """Return the overridden transfer hooks in their order; on a CPU a batch needs no other."""
        hooks = {}
        for name in TRANSFER_HOOKS:
            owners = [each for each in (self.source.data_module, self.module) if each is not None]
            owners = [each for each in owners if overrides(each, name)]
            if owners or (name == TO_DEVICE and self.device.type != "cpu"):
                hooks[name] = getattr([*owners, self.module][0], name)
        return hooks
