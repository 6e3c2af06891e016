"""A data set in memory is three pairs of tensors; a batch is an index into them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset


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
