"""What a DataLoader is elsewhere: the batches of a split, on their device, as the net takes them.

The data lies in memory, so no worker could be faster than an index. Small batches are fetched and moved together, a
block of them: an index costs the same for one row as for hundreds.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lockstep.data.samples import RankLoader, SampleData, SampleLoader, SampleSplit
from lockstep.data.tensors import Batch, TensorData
from lockstep.sampler import ShardSampler

BLOCK_BYTES = 2**20
"""Batches are fetched together until they make this."""

ALIGNED = 64
"""Bytes. At an address that is no multiple of them a matrix product may round otherwise."""

RESIDENT = 0.25
"""Of a GPU's free memory: so much may a data set take there."""


def create_loader(
    data: TensorData | SampleData, split: Any, sampler: ShardSampler, device: torch.device, dtype: torch.dtype
) -> "Loader | SampleLoader":
    """The loader of a split, by whether its samples lie in tensors."""
    if isinstance(split, SampleSplit):
        assert isinstance(data, SampleData)
        return SampleLoader(data, split, sampler, device, dtype)
    assert isinstance(data, TensorData)
    return Loader(data, split, sampler, device, dtype)


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


class Loader(RankLoader):
    """Gathers batches of tensors by index."""

    data: TensorData

    def __iter__(self) -> Iterator[Batch]:
        for block in self._blocks():
            ids = torch.cat(block).to(self.split.inputs.device, non_blocking=True)
            inputs, targets, _ = self.split[ids]
            there = inputs.to(self.device, non_blocking=True), targets.to(self.device, non_blocking=True)
            whole = Batch(*there, ids)
            if not self.split.is_images:
                whole = self.data.as_float(whole, self.dtype)
            sizes = [len(ids) for ids in block]
            parts = torch.split(whole.inputs, sizes), torch.split(whole.targets, sizes), block
            for inputs, targets, ids in zip(*parts, strict=True):
                yield self._ready(inputs, targets, ids)

    def _blocks(self) -> Iterator[list[Tensor]]:
        sample = self.split.inputs.element_size() * self.split.inputs[:1].numel()
        block: list[Tensor] = []
        size = 0
        for ids in self.sampler:
            block.append(ids)
            size += sample * len(ids)
            if size >= BLOCK_BYTES:
                yield block
                block, size = [], 0
        if block:
            yield block

    def _ready(self, inputs: Tensor, targets: Tensor, ids: Tensor) -> Batch:
        """Pixels become numbers batch by batch, four bytes each, while they are in the cache."""
        if self.split.is_images:
            return self.data.as_float(Batch(inputs, targets, ids), self.dtype)
        if inputs.data_ptr() % ALIGNED:  # where a batch lies in a block depends on where training began
            inputs = inputs.clone()
        return Batch(inputs, targets, ids)
