"""Built-in data and Datasets for a plain net, in loaders of this rank's share.

Data in memory needs no workers. Small batches of it are fetched and moved together, a block of them: an index costs the
same for one row as for hundreds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor

from lockstep.batch_math import batch_count
from lockstep.data.samples import SampleData, as_batch
from lockstep.data.tensors import Batch, Split, TensorData
from lockstep.loaders.loader_source import LoaderSource
from lockstep.loaders.rank_loader import BatchShare, RankLoader, RankSlice
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.sampler import EVALUATION_BATCH, epoch_order, rank_slices
from lockstep.structures import map_tensors

BLOCK_BYTES = 2**20
"""Batches are fetched together until they make this."""

ALIGNED = 64
"""Bytes. At an address that is no multiple of them a matrix product may round otherwise."""

RESIDENT = 0.25
"""Of a GPU's free memory: so much may a data set take there."""


class SplitSource(LoaderSource):
    """The three splits of a data set in place of a user's loaders."""

    def __init__(self, plan: Plan, data: TensorData | SampleData, module: Any) -> None:
        super().__init__(plan.data, module, plan.seed, plan.batch_size, owner=None)
        device, *_ = plan.strategy.devices(plan)
        self.plan, self.data = plan, to_device_if_fits(data, device) if isinstance(data, TensorData) else data

    def has(self, stage: str) -> bool:
        return self.plan.steps.validates if stage == "val" else len(getattr(self.data, stage)) > 0

    def loaders(self, stage: str, rank_slice: RankSlice) -> list[RankLoader]:
        return [SplitLoader(self.plan, self.data, stage, rank_slice)]  # type: ignore[arg-type]


class SplitLoader(RankLoader):
    """This rank's share of every global batch of a split, on its device. In a ragged batch it may be empty."""

    def __init__(
        self,
        plan: Plan,
        data: TensorData | SampleData,
        stage: Literal["train", "val", "test"],
        rank_slice: RankSlice,
    ) -> None:
        super().__init__(rank_slice, plan.seed, stage == "train")
        self.plan, self.data, self.split = plan, data, getattr(data, stage)
        self.device, *_ = plan.strategy.devices(plan)
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
        self.shares.clear()  # an epoch that was ended early leaves some
        epoch, samples, accumulate = self.epoch, self.samples, self.accumulate
        full_step = self.batch_size * accumulate
        order = torch.arange(samples) if self.order_seed is None else epoch_order(samples, self.order_seed, epoch)
        slices = rank_slices(order, self.batch_size, self.slice.rank, self.slice.world_size)
        slices = islice(slices, self.first, self.batches)
        for number, batch in enumerate(self._read(slices), start=self.first):
            samples = min(self.batch_size, self.samples - number * self.batch_size)
            step_samples = None
            if self.training:
                is_full = number < self.batches - accumulate
                step_samples = full_step if is_full else self.plan.steps.samples_in_step(self.epoch, number)
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


def to_device_if_fits(data: TensorData, device: torch.device) -> TensorData:
    """The data on the GPU, where it fits beside the net: then only the indices of a block travel."""
    if device.type != "cuda":
        return data
    splits = (data.train, data.val, data.test)
    size = sum(split.inputs.nbytes + split.targets.nbytes for split in splits)
    if size > RESIDENT * torch.cuda.mem_get_info(device)[0]:
        return data
    train, val, test = (split.to(device) for split in splits)
    return replace(data, train=train, val=val, test=test)


def tensor_batches(
    data: TensorData, split: Split, slices: Iterable[Tensor], device: torch.device, dtype: torch.dtype
) -> Iterator[Batch]:
    """Yield a batch for each tensor of ids."""
    for block in _blocks(slices, split.inputs[:1].nbytes):
        ids = torch.cat(block).to(split.inputs.device, non_blocking=True)
        inputs, targets, _ = split[ids]
        fetched = Batch(inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True), ids)
        if not split.is_images:
            fetched = data.as_float(fetched, dtype)
        sizes = [len(ids) for ids in block]
        columns = torch.split(fetched.inputs, sizes), torch.split(fetched.targets, sizes), block
        for batch in map(Batch, *columns):
            if split.is_images:  # batch by batch: numbers of four bytes each, while they are in the cache
                yield data.as_float(batch, dtype)
            elif batch.inputs.data_ptr() % ALIGNED:  # it depends on where training began
                yield batch._replace(inputs=batch.inputs.clone())
            else:
                yield batch


def _blocks(slices: Iterable[Tensor], sample_bytes: int) -> Iterator[list[Tensor]]:
    block: list[Tensor] = []
    size = 0
    for ids in slices:
        block.append(ids)
        size += sample_bytes * len(ids)
        if size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block
