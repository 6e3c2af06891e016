"""The LightningDataModule: hands each rank its share of every global batch, on its device."""

from typing import Any, Literal

import lightning.pytorch as pl
import torch

from lockstep.checkpoint.content import Progress
from lockstep.data.loader import Loader, create_loader
from lockstep.data.samples import SampleData, SampleLoader, SampleSplit
from lockstep.data.tensors import Batch, Split, TensorData
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.sampler import ShardSampler, evaluation_batch


class ShardedData(pl.LightningDataModule):
    """The three splits of a data set, in this rank's shares. Lightning turns the page of a loader's sampler."""

    def __init__(
        self, data: TensorData | SampleData, plan: Plan, context: RankContext, begin: Progress, device: torch.device
    ) -> None:
        """Training begins at a position."""
        super().__init__()
        self.data, self.plan, self.context, self.begin, self.device = data, plan, context, begin, device

    def train_dataloader(self) -> Loader | SampleLoader:
        plan, begin = self.plan, (self.begin.epochs, self.begin.batch)
        options = {"seed": plan.order_seed, "drop_last": plan.drop_last, "begin": begin, "batches": plan.epoch_batches}
        return self._loader(self.data.train, len(self.data.train), plan.batch_size, **options)

    def val_dataloader(self) -> list[Loader | SampleLoader]:
        return [self._evaluation("val")] if self.plan.validates else []

    def test_dataloader(self) -> Loader | SampleLoader:
        return self._evaluation("test")

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """The loader has moved it, together with others."""
        return batch

    def _evaluation(self, stage: Literal["val", "test"]) -> Loader | SampleLoader:
        split = getattr(self.data, stage)
        return self._loader(split, self.plan.samples_of(stage, len(split)), evaluation_batch(self.plan.batch_size))

    def _loader(
        self, split: Split | SampleSplit, samples: int, batch_size: int, **options: Any
    ) -> Loader | SampleLoader:
        """Of the split's first samples, so many."""
        rank, world = self.context.rank, self.context.world_size
        sampler = ShardSampler(samples, batch_size, rank=rank, world_size=world, **options)
        return create_loader(self.data, split, sampler, self.device, dtype_of(self.plan))
