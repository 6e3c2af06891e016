"""Data in memory: pairs of tensors, whose batches are indices into them.

Small batches are fetched and moved together: an index of hundreds of rows takes as long as one of a single row.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

BLOCK_BYTES = 2**20  # bytes of the batches that are fetched together

ALIGNED = 64  # Bytes. At an address that is no multiple of them a matrix product may round differently.

RESIDENT = 0.25  # fraction of a GPU's free memory that a data set may take there

STAGES = ("train", "val", "test")
CPU = torch.device("cpu")


class Batch(NamedTuple):
    """Inputs (b, *shape) and targets (b, …)."""

    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True, eq=False)
class Split(Dataset[Batch]):
    """Inputs (n, *shape) and targets (n, …). Indexed by a tensor of indices, it returns that batch at once.

    mean, std: of images, which stay uint8 until their batch is on the device.
    device, dtype: of the batches that a net takes.
    reconstructs: whether each input, as the net takes it, is its target.
    """

    inputs: Tensor
    targets: Tensor
    mean: float = 0.0
    std: float = 1.0
    device: torch.device = CPU
    dtype: torch.dtype = torch.float32
    reconstructs: bool = False

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, indices: Tensor) -> Batch:
        """Return a batch by `index_select`, which copies complete rows; brackets would copy images byte by byte."""
        return Batch(self.inputs.index_select(0, indices), self.targets.index_select(0, indices))

    @property
    def is_images(self) -> bool:
        return self.inputs.dtype == torch.uint8

    def as_float(self, batch: Batch, dtype: torch.dtype) -> Batch:
        """Return a batch as the net takes it."""
        inputs, targets = as_float(batch, dtype, self.mean, self.std)
        return Batch(inputs, inputs if self.reconstructs else targets)

    def as_dataset(self) -> "TensorDataset":
        """Return pairs of float32 inputs and targets, for a LightningModule."""
        return TensorDataset(*self.as_float(Batch(self.inputs, self.targets), torch.float32))

    def batches(self, slices: Iterable[Tensor]) -> Iterator[Batch]:
        """Yield a batch for each tensor of ids, on the device, as the net takes it."""

        def fetch(ids: Tensor) -> Batch:
            rows = self[ids.to(self.inputs.device, non_blocking=True)]
            fetched = Batch(*(tensor.to(self.device, non_blocking=True) for tensor in rows))
            return fetched if self.is_images else self.as_float(fetched, self.dtype)

        batches = (Batch(*rows) for rows in fetch_in_blocks(fetch, slices, self.inputs[:1].nbytes))
        if not self.is_images:
            return batches
        # batch by batch: a float takes four bytes, and a batch of them fits in the cache
        return (self.as_float(batch, self.dtype) for batch in batches)


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


def prepare_for_net(
    datasets: Mapping[str, Any], device: torch.device, dtype: torch.dtype, reconstructs: bool = False
) -> dict[str, Any]:
    """Return data sets of which those in memory yield batches as a plain net takes them.

    On a GPU they lie on it if they fit beside the net: then only the indices of a block are moved.
    """
    splits = {
        stage: replace(split, device=device, dtype=dtype, reconstructs=reconstructs)
        for stage, split in datasets.items()
        if isinstance(split, Split)
    }
    size = sum(split.inputs.nbytes + split.targets.nbytes for split in splits.values())
    if device.type == "cuda" and size <= RESIDENT * torch.cuda.mem_get_info(device)[0]:
        for stage, split in splits.items():
            splits[stage] = replace(split, inputs=split.inputs.to(device), targets=split.targets.to(device))
    return {**datasets, **splits}


def as_float(batch: Batch, dtype: torch.dtype, mean: float = 0.0, std: float = 1.0) -> Batch:
    """Convert pixels 0…255 to (x/255 - mean)/std and real numbers to `dtype`; other integers and classes stay."""
    inputs, targets = batch
    if inputs.dtype == torch.uint8:
        inputs = inputs.to(dtype).div_(255).sub_(mean).div_(std)
    elif inputs.is_floating_point():
        inputs = inputs.to(dtype)
    return Batch(inputs, targets.to(dtype) if targets.is_floating_point() else targets)


def split_rows(total: int, sizes: Mapping[str, float]) -> dict[str, list[int]]:
    """Return the rows of train, val and test, always the same. Sizes below 1 are fractions of all."""
    val, test = (round(size * total) if 0 < size < 1 else int(size) for size in (sizes["val"], sizes["test"]))
    train = max(0, total - val - test)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0)).tolist()
    return {"train": order[:train], "val": order[train : train + val], "test": order[train + val :]}
