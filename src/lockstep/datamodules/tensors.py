"""The base of the data modules: loaders of three splits, tensors in memory, and batches that become floats."""

from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from lockstep.base.config_error import require

STAGES = ("train", "val", "test")

Split = tuple[Tensor, ...]
"""Inputs (n, *sample_shape) and targets (n, …), or inputs alone."""


class SplitData(LightningDataModule):
    """The base of data modules: a loader for each split in `datasets`; that of training shuffles, except a stream.

    evaluation_batch: Lockstep joins batches of a validation or test to this many samples, since larger ones are faster;
        a Trainer alone leaves them as they are.
    """

    sample_shape: tuple[int, ...]
    num_outputs: int | None
    num_classes: int | None = 0
    class_names: tuple[str, ...] = ()
    mean, std = 0.0, 1.0  # of pixels from 0 to 1
    evaluation_batch = 1024

    def __init__(self, batch_size: int = 64) -> None:
        super().__init__()
        fits = isinstance(batch_size, int) and batch_size >= 1
        require(fits, "batch_size", batch_size, "it must be 1 or more", "batch_size=64")
        self.batch_size = batch_size
        self.datasets: dict[str, Any] = {}
        self.loader_options: dict[str, Any] = {}  # further arguments of DataLoader

    def loader(self, stage: str) -> Any:
        """Return the loader of a split, or none for a split without samples."""
        dataset = self.datasets.get(stage)
        is_stream = isinstance(dataset, IterableDataset)
        if dataset is None or not (is_stream or len(dataset)):
            return []
        shuffle = stage == "train" and not is_stream
        return DataLoader(dataset, batch_size=self.batch_size, shuffle=shuffle, **self.loader_options)

    def train_dataloader(self) -> Any:
        return self.loader("train")

    def val_dataloader(self) -> Any:
        return self.loader("val")

    def test_dataloader(self) -> Any:
        return self.loader("test")

    predict_dataloader = test_dataloader

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Convert pixels 0…255 to (x/255 - mean)/std, and real numbers to the dtype of the module."""
        dtype = self.trainer.lightning_module.dtype if self.trainer is not None else torch.float32
        inputs, *targets = batch
        if inputs.dtype == torch.uint8:
            inputs = inputs.to(dtype).div_(255).sub_(self.mean).div_(self.std)
        return [each.to(dtype) if each.is_floating_point() else each for each in (inputs, *targets)]


class InMemory(SplitData):
    """The base of data modules whose splits are tensors, which `load` returns. Images are uint8 in memory."""

    num_outputs: int

    def load(self) -> dict[str, Split]:
        """Return tensors by train, val and test; a split may be missing."""
        raise NotImplementedError

    def setup(self, stage: str | None = None) -> None:
        if not self.datasets:
            self.datasets = {name: TensorDataset(*split) for name, split in self.load().items()}


def split_in_order(inputs: Tensor, targets: Tensor, val_size: int, test_size: int = 0) -> dict[str, Split]:
    """Return train, val and test: consecutive ranges of the rows, in this order."""
    train = len(inputs) - val_size - test_size
    fits = isinstance(val_size, int) and val_size >= 0 and train > 0
    require(fits, "data.val_size", val_size, f"it must be from 0 to {train + val_size - 1}", "data.val_size=0")
    sizes = [train, val_size, test_size]
    pairs = zip(torch.split(inputs, sizes), torch.split(targets, sizes), strict=True)
    return dict(zip(STAGES, pairs, strict=True))


def split_rows(total: int, val_size: float, test_size: float, seed: int = 0) -> dict[str, list[int]]:
    """Return the rows of train, val and test, the same for a seed. Sizes below 1 are fractions of all."""
    for name, size in (("val_size", val_size), ("test_size", test_size)):
        fits = size >= 0 and (isinstance(size, int) or size < 1)
        require(fits, f"data.{name}", size, "it is a number of samples, or a share below 1", f"data.{name}=0.1")
    val, test = (round(size * total) if 0 < size < 1 else int(size) for size in (val_size, test_size))
    train = total - val - test
    require(train > 0, "data.val_size", val_size, "it leaves nothing to train on", "less, or more data")
    order = torch.randperm(total, generator=torch.Generator().manual_seed(seed)).tolist()
    return {"train": order[:train], "val": order[train : train + val], "test": order[train + val :]}
