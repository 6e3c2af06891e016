"""Batches of data in memory: an index of hundreds of rows takes as long as one of a single row, so they share it."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import torch
from torch import Tensor

BLOCK_BYTES = 2**20  # bytes of the batches that are fetched together

ALIGNED = 64  # Bytes. At an address that is no multiple of them a matrix product may round differently.


def fetch_in_blocks(
    fetch: Callable[[Tensor], Iterable[Tensor]], slices: Iterable[Tensor], sample_bytes: int
) -> Iterator[list[Tensor]]:
    """Yield the rows that `fetch` returns for each tensor of ids; several small batches are fetched at once."""
    slices = iter(slices)
    for first in slices:
        block = [first, *islice(slices, BLOCK_BYTES // max(1, sample_bytes * first.shape[0]))]
        sizes = [ids.shape[0] for ids in block]
        for batch in zip(*(torch.split(tensor, sizes) for tensor in fetch(torch.cat(block))), strict=True):
            # where a batch lies in its block depends on where training began
            yield [tensor.clone() if tensor.data_ptr() % ALIGNED else tensor for tensor in batch]
