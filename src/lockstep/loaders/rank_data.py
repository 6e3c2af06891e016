"""The data of one rank: its slice of each loader, and how a batch gets to the device."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lockstep.checkpoint.content import Progress
from lockstep.launch.topology import RankContext
from lockstep.loaders.loader_source import METHOD, LoaderSource
from lockstep.loaders.map_loader import MapLoader
from lockstep.loaders.rank_loader import BatchShare, RankLoader, RankSlice
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.random_state import preserve_generators
from lockstep.step_plan import STAGES
from lockstep.structures import map_tensors
from lockstep.targets.kinds import overrides

TO_DEVICE = "transfer_batch_to_device"
TRANSFER_HOOKS = ("on_before_batch_transfer", TO_DEVICE, "on_after_batch_transfer")


class RankData:
    """Loaders by stage (train, val, test).

    begin: where training begins, which may be within an epoch.
    """

    def __init__(self, plan: Plan, context: RankContext, source: LoaderSource, module: Any, begin: Progress) -> None:
        self.plan, self.context, self.source, self.module, self.begin = plan, context, source, module, begin
        source.seed_setup()
        self.device: torch.device = plan.strategy.devices(plan)[0]
        self.by_stage: dict[str, list[RankLoader]] = {}
        for stage in STAGES:
            if self.runs(stage):
                object.__setattr__(source.owner, METHOD[stage], lambda stage=stage: self.dataloader(stage))

    def runs(self, stage: str) -> bool:
        """Whether there is a loader and a step for a stage, and the plan leaves it some batches."""
        return self.source.has(stage) and getattr(self.plan.trainer, f"limit_{stage}_batches") != 0

    def loaders(self, stage: str) -> list[RankLoader]:
        if stage not in self.by_stage:
            plan, training = self.plan, stage == "train"
            virtual_ranks = plan.strategy.virtual_ranks(plan)
            rank_slice = RankSlice(self.context.rank, self.context.world_size, virtual_ranks)
            self.by_stage[stage] = loaders = self.source.loaders(stage, rank_slice)
            for loader in loaders:
                loader.begin = (self.begin.epochs, self.begin.batch)
                loader.set_epoch(self.begin.epochs if training else 0)
                loader.accumulation = plan.steps.batches_per_step
                loader.pads_ranks = training or plan.strategy.shards_weights(plan)
                loader.limit = getattr(plan.trainer, f"limit_{stage}_batches")
                if training:
                    loader.fixed = plan.trainer.overfit_batches > 0
                    loader.drop_last = loader.drop_last or plan.drop_last
                else:
                    loader.evaluation_batch = getattr(self.source.owner, "evaluation_batch", 1)
        return self.by_stage[stage]

    def dataloader(self, stage: str) -> Any:
        """Return what `train_dataloader` and its like return: a loader, or a list of several."""
        loaders = self.loaders(stage)
        return loaders[0] if len(loaders) == 1 else loaders

    def next_share(self, stage: str, loader: int = 0) -> BatchShare:
        """Return this rank's share of the next batch, in the order in which the loader has yielded them."""
        return self.by_stage[stage][loader].shares.popleft()

    def transfer(self, batch: Any, loader: int = 0) -> Any:
        """Convert a batch to the plan's dtype, and move it by the hooks of the module or its LightningDataModule."""
        dtype = dtype_of(self.plan)

        def converted(tensor: Tensor) -> Tensor:
            return tensor if tensor.dtype == dtype or not tensor.is_floating_point() else tensor.to(dtype)

        batch = map_tensors(converted, batch)
        for name, hook in self._transfer_hooks.items():
            batch = hook(batch, self.device, loader) if name == TO_DEVICE else hook(batch, loader)
        return batch

    def example(self) -> Any:
        """Return the module's `example_input_array`, or else the first inputs of data that tells its sample shape."""
        array = self.module.example_input_array
        if array is not None:
            return self.transfer(array)
        [loader] = self.loaders("train")
        if self.plan.data.sample_shape is None or not isinstance(loader, MapLoader):
            return None
        with preserve_generators():
            batch = self.transfer(loader.loader.collate_fn([loader.loader.dataset[0]]))
        return batch[0] if isinstance(batch, list | tuple) else batch

    @cached_property
    def _transfer_hooks(self) -> dict[str, Callable[..., Any]]:
        """Return the overridden transfer hooks in their order; on a CPU a batch needs no other."""
        owners = [owner for owner in (self.source.data_module, self.module) if owner is not None]
        hooks = {}
        for name in TRANSFER_HOOKS:
            if overriding := [owner for owner in owners if overrides(owner, name)]:
                hooks[name] = getattr(overriding[0], name)
            elif name == TO_DEVICE and self.device.type != "cpu":
                hooks[name] = getattr(self.module, name, _to_device)
        return hooks


def _to_device(batch: Any, device: torch.device, loader: int) -> Any:
    return map_tensors(lambda tensor: tensor.to(device, non_blocking=True), batch)
