"""Data in memory for a plain net: small batches are fetched and moved together, since an index of hundreds of rows
takes as long as one of a single row.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor
from torch.utils.data import Dataset

from lockstep.data.tensors import Batch, Split, TensorData

BLOCK_BYTES = 2**20
"""Bytes of the batches that are fetched together."""

ALIGNED = 64
"""Bytes. At an address that is no multiple of them a matrix product may round differently."""

RESIDENT = 0.25
"""Fraction of a GPU's free memory that a data set may take there."""


class InMemory(Dataset[Batch]):
    """A split whose batches are on the device, as the net takes them."""

    def __init__(self, data: TensorData, split: Split, device: torch.device, dtype: torch.dtype) -> None:
        self.data, self.split, self.device, self.dtype = data, split, device, dtype

    def __len__(self) -> int:
        return len(self.split)

    def batches(self, slices: Iterable[Tensor]) -> Iterator[Batch]:
        """Yield a batch for each tensor of ids."""
        split, device, sample_bytes = self.split, self.device, self.split.inputs[:1].nbytes
        slices = iter(slices)
        for first in slices:
            block = [first, *islice(slices, BLOCK_BYTES // (sample_bytes * len(first)))]
            rows = split[torch.cat(block).to(split.inputs.device, non_blocking=True)]
            fetched = Batch(*(tensor.to(device, non_blocking=True) for tensor in rows))
            if not split.is_images:
                fetched = self.data.as_float(fetched, self.dtype)
            sizes = [len(ids) for ids in block]
            for batch in map(Batch, *(torch.split(tensor, sizes) for tensor in fetched)):
                if split.is_images:  # batch by batch: a float takes four bytes, and a batch of them fits in the cache
                    yield self.data.as_float(batch, self.dtype)
                elif batch.inputs.data_ptr() % ALIGNED:  # it depends on where training began
                    yield batch._replace(inputs=batch.inputs.clone())
                else:
                    yield batch


def to_device_if_fits(data: TensorData, device: torch.device) -> TensorData:
    """Return the data on the GPU if it fits beside the net: then only the indices of a block are moved."""
    splits = (data.train, data.val, data.test)
    size = sum(split.inputs.nbytes + split.targets.nbytes for split in splits)
    if device.type != "cuda" or size > RESIDENT * torch.cuda.mem_get_info(device)[0]:
        return data
    train, val, test = (Split(split.inputs.to(device), split.targets.to(device)) for split in splits)
    return replace(data, train=train, val=val, test=test)
