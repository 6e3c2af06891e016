"""A data set is three pairs of tensors; a batch is an index into them, so no sample is ever touched alone in Python."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    """Inputs (b, *shape), targets (b, …), and which samples of the split they are: int64 (b,)."""

    inputs: Tensor
    targets: Tensor
    ids: Tensor


class Split:
    """Inputs (n, *shape) and targets (n, …). Indexed by a tensor of indices, it returns that batch at once."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets
        self.is_images = inputs.dtype == torch.uint8

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, indices: Tensor) -> Batch:
        """By `index_select`, which copies whole rows; brackets would go through images byte by byte."""
        return Batch(self.inputs.index_select(0, indices), self.targets.index_select(0, indices), indices)

    def to(self, device: torch.device) -> "Split":
        return Split(self.inputs.to(device), self.targets.to(device))


@dataclass(frozen=True)
class TensorData:
    """Train, validation and test split; images stay uint8 until they are on the device.

    own_targets: whether each input, as the net takes it, is its target.
    """

    train: Split
    val: Split
    test: Split
    outputs: int
    mean: float = 0.0
    std: float = 1.0
    own_targets: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.train.inputs.shape[1:])

    def first(self, dtype: torch.dtype) -> Tensor:
        """The first training sample as the net takes it: (1, *shape)."""
        first = torch.zeros(1, dtype=torch.int64, device=self.train.inputs.device)
        return self.as_float(self.train[first], dtype).inputs

    def as_float(self, batch: Batch, dtype: torch.dtype) -> Batch:
        """A batch as the net takes it."""
        whole = as_float(batch, dtype, self.mean, self.std)
        return Batch(whole.inputs, whole.inputs, whole.ids) if self.own_targets else whole


def as_float(batch: Batch, dtype: torch.dtype, mean: float = 0.0, std: float = 1.0) -> Batch:
    """Pixels 0…255 become (x/255 - mean)/std, real numbers `dtype`; integers other than pixels, and classes, stay."""
    inputs, targets, ids = batch
    if inputs.dtype == torch.uint8:
        inputs = inputs.to(dtype).div_(255).sub_(mean).div_(std)
    elif inputs.is_floating_point():
        inputs = inputs.to(dtype)
    return Batch(inputs, targets.to(dtype) if targets.is_floating_point() else targets, ids)


def split_three(inputs: Tensor, targets: Tensor, val_size: int, test_size: int) -> tuple[Split, Split, Split]:
    """Train, val, test: consecutive stretches of the rows, in this order."""
    train, val = len(inputs) - val_size - test_size, len(inputs) - test_size
    stretches = (slice(0, train), slice(train, val), slice(val, None))
    first, second, third = (Split(inputs[stretch], targets[stretch]) for stretch in stretches)
    return first, second, third


def split_rows(total: int, sizes: Mapping[str, float]) -> dict[str, list[int]]:
    """The rows of train, val and test; no rows to train on where the others take all.

    Args:
        sizes: of val and test, in rows or, below 1, as shares of all.
    """
    counts = {name: round(size * total) if 0 < size < 1 else int(size) for name, size in sizes.items()}
    train = max(0, total - sum(counts.values()))
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0)).tolist()
    cut = train + counts["val"]
    return {"train": order[:train], "val": order[train:cut], "test": order[cut:]}
