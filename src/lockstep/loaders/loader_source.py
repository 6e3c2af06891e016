"""Where the batches of a run come from: a LightningDataModule, the module itself, or data of another kind."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from lockstep import data, schemas
from lockstep.config_error import ConfigError, require
from lockstep.data.samples import SampleData, Streams
from lockstep.data.tensors import Batch, TensorData, as_float
from lockstep.loaders.rank_loader import RankLoader, RankSlice
from lockstep.loaders.user_loaders import rank_loader
from lockstep.random_state import generators_kept, seed_all
from lockstep.schemas.own_data import BATCH_SIZE
from lockstep.schemas.target import KEY
from lockstep.targets.kinds import is_combined_loader, is_data_module, overrides
from lockstep.targets.replace_method import replace_method

STAGES = ("train", "val", "test")
METHOD = {stage: f"{stage}_dataloader" for stage in STAGES}
STEP = {"train": "training_step", "val": "validation_step", "test": "test_step"}


class LoaderSource:
    """Whose train_dataloader, val_dataloader and test_dataloader a run asks: `owner` is a LightningDataModule, or the
    module itself; None where the data is one of the other kinds, from which loaders are made here.
    """

    def __init__(self, choice: schemas.Data, module: Any, seed: int, batch_size: int | None) -> None:
        """`module` is None before it is made; `batch_size` is the plan's."""
        self.choice, self.module, self.seed, self.batch_size = choice, module, seed, batch_size
        self.owner: Any = None
        self.made: TensorData | SampleData | Streams | None = None
        if isinstance(choice, schemas.OwnLoaders):
            from lockstep.targets.locate import create  # for the user's code alone

            own = self.seeded(lambda: create("data", choice.call))
            if not is_data_module(own):
                from lockstep.data.own import streams_of

                self.made = streams_of(choice, own)
            why = f"it makes a {type(own).__name__}, and not a LightningDataModule"
            fits = is_data_module(own) or self.made is not None
            require(fits, f"data.{KEY}", choice.call[KEY], why, "the path of a LightningDataModule")
            self.owner = own if self.made is None else None
        elif isinstance(choice, schemas.ModelLoaders):
            self.owner = module
        else:
            self.made = data.load_splits(choice, seed, samples="theirs")
        self.originals: dict[str, Callable[[], Any]] = {
            stage: getattr(self.owner, METHOD[stage]) for stage in STAGES if self.owner is not None
        }

    @property
    def is_data_module(self) -> bool:
        return self.owner is not None and self.owner is not self.module

    def seeded(self, call: Callable[[], Any]) -> Any:
        """Whatever is drawn there is drawn under the run's seed, the same on every rank."""
        with generators_kept():
            seed_all(self.seed)
            return call()

    def seed_setup(self) -> None:
        """Have `setup` of the module and of the data module draw under the run's seed, the same on every rank."""

        def setup(original: Callable[..., None]) -> Callable[..., None]:
            return lambda stage=None: self.seeded(lambda: original(stage))

        for each in {id(self.module): self.module, id(self.owner): self.owner}.values():
            if hasattr(each, "setup"):
                replace_method(each, "setup", setup)
                replace_method(each, "prepare_data", lambda _: lambda: None)  # done before any rank was started

    def has(self, stage: str) -> bool:
        """Whether there is a loader for this stage, and a step of the module that takes it."""
        if self.module is not None and not overrides(self.module, STEP[stage]):
            return False
        if isinstance(self.made, Streams):
            return stage in self.made.splits
        if self.made is not None:
            return len(getattr(self.made, stage)) > 0
        return overrides(self.owner, METHOD[stage])

    def theirs(self, stage: str) -> list[Any]:
        """The loaders as the user makes them.

        Raises:
            ConfigError: there is none to train on, or training takes several at a time.
        """
        found = [self._of_splits(stage)] if self.made is not None else self.seeded(self.originals[stage])
        if is_combined_loader(found):
            raise ConfigError(
                f"{type(self.owner).__name__}.{METHOD[stage]}: it returns a CombinedLoader, and only single loaders "
                f"are divided among ranks; return {'one loader' if stage == 'train' else 'a list of loaders'}."
            )
        if isinstance(found, Mapping):
            found = [*found.values()]
        listed = [*found] if isinstance(found, list | tuple) else [found]
        if stage == "train" and len(listed) != 1:
            raise ConfigError(
                f"{type(self.owner).__name__}.train_dataloader: it returns {len(listed)} loaders at a time, and a "
                "training step takes one; write one loader."
            )
        return listed

    def loaders(self, stage: str, rank_slice: RankSlice) -> list[RankLoader]:
        """This rank's shares of them."""
        found = self.theirs(stage)
        sizes = self._batch_sizes(stage, len(found))
        return [
            rank_loader(own, rank_slice, self.seed, stage == "train", size)
            for own, size in zip(found, sizes, strict=True)
        ]

    def _batch_sizes(self, stage: str, loaders: int) -> Sequence[int | None]:
        """Of each loader the global one; None: its own. What evaluates on a user's own loaders keeps theirs, as one
        process has them: a LightningDataModule may divide its batch size by the number of ranks.
        """
        if self.owner is not None and stage != "train":
            known = getattr(self.choice, f"{stage}_batch_sizes", ())
            return [size or None for size in known] if len(known) == loaders else [None] * loaders
        regular = getattr(self.choice, "regular", True) or self.owner is None
        return [self.batch_size if regular else None] * loaders

    def _of_splits(self, stage: str) -> "DataLoader[Any]":
        """Of data of the other kinds: pairs (inputs, targets); of an IterableDataset what it gives."""
        if isinstance(self.made, Streams):
            return DataLoader(self.made.splits[stage], batch_size=self.batch_size or BATCH_SIZE, **self.made.loader)
        split = getattr(self.made, stage)
        options: dict[str, Any] = {"batch_size": self.batch_size, "shuffle": stage == "train"}
        if isinstance(self.made, SampleData):
            return DataLoader(split.dataset, **options, **self.made.loader)
        assert self.made is not None
        whole = Batch(split.inputs, split.targets, torch.arange(len(split)))
        inputs, target, _ = as_float(whole, torch.float32, self.made.mean, self.made.std)
        return DataLoader(TensorDataset(inputs, target), **options)
