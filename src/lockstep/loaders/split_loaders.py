"""Built-in data and Datasets for a plain net, in loaders of this rank's share: in blocks where data is in memory."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal

import torch
from torch import Tensor

from lockstep.batch_math import batch_count
from lockstep.data.loader import tensor_batches
from lockstep.data.samples import SampleData, as_batch
from lockstep.data.tensors import Batch, TensorData
from lockstep.loaders.rank_loader import BatchShare, RankLoader, RankSlice
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.sampler import EVALUATION_BATCH, epoch_order, rank_slices
from lockstep.structures import map_tensors


class SplitSource:
    """The three splits of a data set in place of a user's loaders."""

    owner = None
    is_data_module = False

    def __init__(self, plan: Plan, data: TensorData | SampleData, device: torch.device) -> None:
        self.plan, self.data, self.device = plan, data, device

    def seed_setup(self) -> None:
        """No-op: the data is loaded."""

    def require_samples(self, stage: str, loaders: Sequence[RankLoader], ranks: int) -> None:
        """No-op: the steps of a task call no collectives."""

    def has(self, stage: str) -> bool:
        return self.plan.steps.validates if stage == "val" else len(getattr(self.data, stage)) > 0

    def loaders(self, stage: str, rank_slice: RankSlice) -> list[RankLoader]:
        return [SplitLoader(self.plan, self.data, stage, rank_slice, self.device)]  # type: ignore[arg-type]


class SplitLoader(RankLoader):
    """This rank's share of every global batch of a split, on its device. In a ragged batch it may be empty."""

    def __init__(
        self,
        plan: Plan,
        data: TensorData | SampleData,
        stage: Literal["train", "val", "test"],
        rank_slice: RankSlice,
        device: torch.device,
    ) -> None:
        super().__init__(rank_slice, plan.seed, stage == "train")
        self.plan, self.data, self.split, self.device = plan, data, getattr(data, stage), device
        self.samples, self.batch_size, self.batches = len(self.split), plan.batch_size, plan.steps.epoch_batches
        self.order_seed = plan.order_seed if self.training else None
        if stage != "train":
            self.samples = plan.steps.samples_of(stage, self.samples)
            self.batch_size = max(plan.batch_size, EVALUATION_BATCH)
            self.batches = batch_count(self.samples, self.batch_size)
        self.reader = data.reader(self.split) if isinstance(data, SampleData) else None

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Batch]:
        epoch, samples = self.epoch, self.samples
        order = torch.arange(samples) if self.order_seed is None else epoch_order(samples, self.order_seed, epoch)
        slices = rank_slices(order, self.batch_size, self.slice.rank, self.slice.world_size)
        slices = islice(slices, self.first, self.batches)
        for number, batch in enumerate(self._read(slices), start=self.first):
            samples = min(self.batch_size, self.samples - number * self.batch_size)
            step_samples = self.plan.steps.samples_in_step(self.epoch, number) if self.training else None
            self.shares.append(BatchShare(batch.ids, samples, step_samples))
            yield batch

    def _read(self, slices: Iterable[Tensor]) -> Iterator[Batch]:
        """Yield the batch of each slice on the device; what is the same in each epoch is drawn as in the first."""
        dtype = dtype_of(self.plan)
        if self.reader is None:
            yield from tensor_batches(self.data, self.split, slices, self.device, dtype)  # type: ignore[arg-type]
            return
        all_ids = [*slices]
        epoch = 0 if self.order_seed is None else self.epoch
        for ids, samples in zip(all_ids, self.reader.batches(epoch, all_ids), strict=True):
            if samples is None:  # no samples of a ragged batch: the shapes alone
                samples = map_tensors(lambda tensor: tensor[:0], self.reader.source.__getitems__([(0, 0)]))
            moved = map_tensors(lambda tensor: tensor.to(self.device, non_blocking=True), samples)
            yield as_batch(moved, self.plan.task.samples, dtype)._replace(ids=ids)
