"""DataLoaders for a user's module over data without loaders: Datasets, tensors, streams, built-in data sets."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from lockstep import schemas
from lockstep.data.samples import SampleData, Streams
from lockstep.data.tensors import Batch, TensorData, as_float
from lockstep.loaders.loader_source import LoaderSource
from lockstep.schemas.own_data import BATCH_SIZE


class DatasetSource(LoaderSource):
    """A source without an owner, which makes one loader for each split of `splits`."""

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
