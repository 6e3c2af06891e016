"""Data in memory: tensors by split, whose loaders fetch batches by index, and the conversion of a batch to floats."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from lockstep.config_error import require

STAGES = ("train", "val", "test")

EVALUATION_BATCH = 1024
"""Samples that Lockstep joins to a batch of an evaluation: metrics stay the same, and larger batches are faster."""

Split = tuple[Tensor, ...]
"""Inputs (n, *sample_shape) and targets (n, …), or inputs alone."""


class InMemory(LightningDataModule):
    """The base of data modules whose splits are tensors: a derived class returns them by train, val and test.

    Images stay uint8 in memory; a batch of them becomes (x/255 - mean)/std on its device.
    """

    sample_shape: tuple[int, ...]
    num_outputs: int
    num_classes = 0
    class_names: tuple[str, ...] = ()
    mean, std = 0.0, 1.0
    evaluation_batch = EVALUATION_BATCH

    def __init__(self, batch_size: int = 64) -> None:
        super().__init__()
        check_batch_size(batch_size)
        self.batch_size = batch_size
        self.splits: dict[str, Split] = {}

    def load(self) -> dict[str, Split]:
        """Return tensors by train, val and test; a split may be missing."""
        raise NotImplementedError

    def setup(self, stage: str | None = None) -> None:
        if not self.splits:
            self.splits = {name: split for name, split in self.load().items() if len(split[0])}

    def train_dataloader(self) -> Any:
        return DataLoader(TensorDataset(*self.splits["train"]), batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self) -> Any:
        return self.evaluation_loader("val")

    def test_dataloader(self) -> Any:
        return self.evaluation_loader("test")

    def predict_dataloader(self) -> Any:
        return self.evaluation_loader("test")

    def evaluation_loader(self, name: str) -> Any:
        """Return a loader in order, or none for a split without samples."""
        if name not in self.splits:
            return []
        return DataLoader(TensorDataset(*self.splits[name]), batch_size=self.batch_size)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Convert pixels and real numbers of a batch to the dtype of the module."""
        dtype = self.trainer.lightning_module.dtype if self.trainer is not None else torch.float32
        inputs, *targets = batch
        real = (each.to(dtype) if each.is_floating_point() else each for each in targets)
        return [as_float(inputs, dtype, self.mean, self.std), *real]


def as_float(tensor: Tensor, dtype: Any, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Convert pixels 0…255 to (x/255 - mean)/std and real numbers to `dtype`; other integers stay."""
    if tensor.dtype == torch.uint8:
        return tensor.to(dtype).div_(255).sub_(mean).div_(std)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def split_three(inputs: Tensor, targets: Tensor, val_size: int, test_size: int) -> dict[str, Split]:
    """Return train, val and test: consecutive ranges of the rows, in this order."""
    sizes = [len(inputs) - val_size - test_size, val_size, test_size]
    pairs = zip(torch.split(inputs, sizes), torch.split(targets, sizes), strict=True)
    return dict(zip(STAGES, pairs, strict=True))


def split_rows(total: int, sizes: Mapping[str, float]) -> dict[str, list[int]]:
    """Return the rows of train, val and test, always the same. Sizes below 1 are fractions of all."""
    val, test = (round(size * total) if 0 < size < 1 else int(size) for size in (sizes["val"], sizes["test"]))
    train = max(0, total - val - test)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0)).tolist()
    return {"train": order[:train], "val": order[train : train + val], "test": order[train + val :]}


def targets_for_loss(targets: Tensor) -> Tensor:
    """Return real numbers as (n, outputs), so that one a sample is not compared with all outputs; classes as int64."""
    if targets.is_floating_point():
        return targets[:, None] if targets.dim() == 1 else targets
    return targets.long().flatten() if targets.dim() == 2 and targets.shape[1] == 1 else targets.long()


def count_classes(splits: Iterable[Sequence[Tensor]]) -> int:
    """Return the largest class, or token, of all splits and one; 0 if there are none."""
    integers = [
        each
        for tensors in splits
        for each in tensors
        if len(each) and not each.is_floating_point() and (each is tensors[-1] or _are_tokens(*tensors))
    ]
    return max((int(each.max()) + 1 for each in integers), default=0)


def _are_tokens(inputs: Tensor, targets: Tensor) -> bool:
    return inputs.dtype != torch.uint8 and inputs.dim() == 2 and inputs.shape == targets.shape


def check_batch_size(size: int) -> None:
    fits = isinstance(size, int) and size >= 1
    require(fits, "batch_size", size, "it must be 1 or more", "batch_size=64")


def check_size(name: str, size: float, total: int, least: int = 0) -> None:
    """Raise unless a split has from `least` to less than `total` samples."""
    reason = f"it must be from {least} to {total - 1}"
    fits, hint = isinstance(size, int) and least <= size < total, f"data.{name}={max(least, total // 10)}"
    require(fits, f"data.{name}", size, reason, hint)


def check_share(name: str, size: float) -> None:
    """Raise unless a size is a number of samples, or a share below 1."""
    fits = size >= 0 and (isinstance(size, int) or size < 1)
    require(fits, f"data.{name}", size, "it is a number of samples, or a share below 1", f"data.{name}=0.1")
