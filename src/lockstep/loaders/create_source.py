"""Where the batches of a user's module come from: a LightningDataModule, the module itself, or data of another kind."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from lockstep import data, schemas
from lockstep.config_error import config_error
from lockstep.data.samples import SampleData, Streams
from lockstep.data.tensors import Batch, TensorData, as_float
from lockstep.loaders.loader_source import LoaderSource
from lockstep.schemas.data import BATCH_SIZE
from lockstep.schemas.target import KEY
from lockstep.targets.kinds import is_data_module


def create_source(choice: schemas.Data, module: Any, seed: int, batch_size: int | None) -> LoaderSource:
    """Return the source of a data set's loaders.

    Args:
        module: None before it is created.
        batch_size: the plan's.

    Raises:
        ConfigError: the data's target returns neither a LightningDataModule nor streams.
    """
    if isinstance(choice, schemas.ModelLoaders):
        return LoaderSource(choice, module, seed, batch_size, module)
    if not isinstance(choice, schemas.UserLoaders):
        return DatasetSource(choice, module, seed, batch_size, data.load_splits(choice, seed, samples="module"))
    from lockstep.data.own import made_by, streams_of

    created = made_by(choice, seed)
    if is_data_module(created):
        return LoaderSource(choice, module, seed, batch_size, created)
    streams = streams_of(choice, created)
    if streams is None:
        reason = f"it makes a {type(created).__name__}, and not a LightningDataModule"
        raise config_error(f"data.{KEY}", choice.call[KEY], reason, "the path of a LightningDataModule")
    return DatasetSource(choice, module, seed, batch_size, streams)


class DatasetSource(LoaderSource):
    """A source of data without loaders (Datasets, tensors, streams, built-in): it makes one for each split."""

    def __init__(
        self,
        choice: schemas.Data,
        module: Any,
        seed: int,
        batch_size: int | None,
        splits: TensorData | SampleData | Streams,
    ) -> None:
        super().__init__(choice, module, seed, batch_size, owner=None)
        self.splits = splits

    def has_loader(self, stage: str) -> bool:
        if isinstance(self.splits, Streams):
            return stage in self.splits.splits
        return len(getattr(self.splits, stage)) > 0

    def user_loaders(self, stage: str) -> list[Any]:
        return [self._loader(stage)]

    def batch_sizes(self, stage: str, loaders: int) -> Sequence[int | None]:
        return [self.batch_size]

    def _loader(self, stage: str) -> "DataLoader[Any]":
        """Return a loader of pairs (inputs, targets), or of what an IterableDataset yields."""
        if isinstance(self.splits, Streams):
            size = self.batch_size or BATCH_SIZE
            return DataLoader(self.splits.splits[stage], batch_size=size, **self.splits.loader)
        split = getattr(self.splits, stage)
        options: dict[str, Any] = {"batch_size": self.batch_size, "shuffle": stage == "train"}
        if isinstance(self.splits, SampleData):
            return DataLoader(split, **options, **self.splits.loader)
        samples = Batch(split.inputs, split.targets, torch.arange(len(split)))
        inputs, targets, _ = as_float(samples, torch.float32, self.splits.mean, self.splits.std)
        return DataLoader(TensorDataset(inputs, targets), **options)
