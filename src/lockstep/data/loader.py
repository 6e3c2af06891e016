"""What a DataLoader is elsewhere: the batches of a split, on their device, as the net takes them.

The data lies in memory, so no worker could be faster than an index. Small batches are fetched and moved together, a
block of them: an index costs the same for one row as for hundreds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from lockstep.data.tensors import Batch, Split, TensorData

BLOCK_BYTES = 2**20
"""Batches are fetched together until they make this."""

ALIGNED = 64
"""Bytes. At an address that is no multiple of them a matrix product may round otherwise."""

RESIDENT = 0.25
"""Of a GPU's free memory: so much may a data set take there."""


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
