"""Data in memory: three pairs of tensors, whose batches are indices into them.

Small batches are fetched and moved together: an index of hundreds of rows takes as long as one of a single row.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

BLOCK_BYTES = 2**20
"""Bytes of the batches that are fetched together."""

ALIGNED = 64
"""Bytes. At an address that is no multiple of them a matrix product may round differently."""

RESIDENT = 0.25
"""Fraction of a GPU's free memory that a data set may take there."""


class Batch(NamedTuple):
    """Inputs (b, *shape) and targets (b, …)."""

    inputs: Tensor
    targets: Tensor


class Split:
    """Inputs (n, *shape) and targets (n, …). Indexed by a tensor of indices, it returns that batch at once."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets
        self.is_images = inputs.dtype == torch.uint8

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, indices: Tensor) -> Batch:
        """Return a batch by `index_select`, which copies complete rows; brackets would copy images byte by byte."""
        return Batch(self.inputs.index_select(0, indices), self.targets.index_select(0, indices))


@dataclass(frozen=True)
class TensorData:
    """Train, validation and test split; images stay uint8 until they are on the device.

    reconstructs: whether each input, as the net takes it, is its target.
    """

    train: Split
    val: Split
    test: Split
    outputs: int
    mean: float = 0.0
    std: float = 1.0
    reconstructs: bool = False
    loader: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one sample."""
        return tuple(self.train.inputs.shape[1:])

    @property
    def splits(self) -> dict[str, Split]:
        return {"train": self.train, "val": self.val, "test": self.test}

    @property
    def datasets(self) -> dict[str, Dataset[Any]]:
        """Return pairs of float32 inputs and targets, for a LightningModule."""
        return {
            name: TensorDataset(*as_float(Batch(split.inputs, split.targets), torch.float32, self.mean, self.std))
            for name, split in self.splits.items()
        }

    def first(self, dtype: torch.dtype) -> Tensor:
        """Return the first training sample as the net takes it: (1, *shape)."""
        first = torch.zeros(1, dtype=torch.int64, device=self.train.inputs.device)
        return self.as_float(self.train[first], dtype).inputs

    def as_float(self, batch: Batch, dtype: torch.dtype) -> Batch:
        """Return a batch as the net takes it."""
        inputs, targets = as_float(batch, dtype, self.mean, self.std)
        return Batch(inputs, inputs if self.reconstructs else targets)


def as_float(batch: Batch, dtype: torch.dtype, mean: float = 0.0, std: float = 1.0) -> Batch:
    """Convert pixels 0…255 to (x/255 - mean)/std and real numbers to `dtype`; other integers and classes stay."""
    inputs, targets = batch
    if inputs.dtype == torch.uint8:
        inputs = inputs.to(dtype).div_(255).sub_(mean).div_(std)
    elif inputs.is_floating_point():
        inputs = inputs.to(dtype)
    return Batch(inputs, targets.to(dtype) if targets.is_floating_point() else targets)


def split_three(inputs: Tensor, targets: Tensor, val_size: int, test_size: int) -> tuple[Split, Split, Split]:
    """Return train, val and test: consecutive ranges of the rows, in this order."""
    sizes = [len(inputs) - val_size - test_size, val_size, test_size]
    train, val, test = map(Split, torch.split(inputs, sizes), torch.split(targets, sizes))
    return train, val, test


def split_rows(total: int, sizes: Mapping[str, float]) -> dict[str, list[int]]:
    """Return the rows of train, val and test, always the same; none to train on if the others take all.

    Args:
        sizes: of val and test, in rows or, below 1, as fractions of all.
    """
    val, test = (round(size * total) if 0 < size < 1 else int(size) for size in (sizes["val"], sizes["test"]))
    train = max(0, total - val - test)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0)).tolist()
    return {"train": order[:train], "val": order[train : train + val], "test": order[train + val :]}


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
