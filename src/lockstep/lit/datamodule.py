"""The LightningDataModule: hands each rank its share of every global batch, and the batch to the device."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader

from lockstep.checkpoint.content import Position
from lockstep.data.tensors import Batch, Split, TensorData
from lockstep.launch.place import Place
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.shards import ShardSampler, evaluation_batch


class ShardedData(pl.LightningDataModule):
    """The three splits of a data set, in this rank's shares."""

    def __init__(self, data: TensorData, plan: Plan, place: Place, begin: Position) -> None:
        """Training begins at a position."""
        super().__init__()
        self.data, self.plan, self.place, self.begin = data, plan, place, begin
        self.dtype = dtype_of(plan)

    def train_dataloader(self) -> DataLoader[Batch]:
        plan, begin = self.plan, (self.begin.epochs, self.begin.batch)
        return self._loader(self.data.train, plan.batch_size, seed=plan.seed, drop_last=plan.drop_last, begin=begin)

    def val_dataloader(self) -> list[DataLoader[Batch]]:
        return [self._evaluation(self.data.val)] if len(self.data.val) else []

    def test_dataloader(self) -> DataLoader[Batch]:
        return self._evaluation(self.data.test)

    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        return self.data.as_float(batch, self.dtype)

    def _evaluation(self, split: Split) -> DataLoader[Batch]:
        return self._loader(split, evaluation_batch(self.plan.batch_size))

    def _loader(self, split: Split, batch_size: int, **options: Any) -> DataLoader[Batch]:
        """Lightning calls the sampler's `set_epoch`; without a batch size the sampler's indices fetch a whole batch."""
        rank, world = self.place.rank, self.place.world_size
        sampler = ShardSampler(len(split), batch_size, rank=rank, world_size=world, **options)
        return DataLoader(
            split,
            batch_size=None,
            sampler=sampler,
            collate_fn=_as_it_is,  # type: ignore[arg-type]  # without a batch size it gets what the data set gives
            generator=torch.Generator(),  # else every epoch would draw from the generator that dropout uses
        )


def _as_it_is(batch: Batch) -> Batch:
    return batch
