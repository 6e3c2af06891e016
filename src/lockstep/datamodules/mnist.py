"""MNIST: its four files, plain or .gz, or downloaded.

Source: Y. LeCun, C. Cortes, C. Burges, The MNIST Database of Handwritten Digits.
"""

import os
from pathlib import Path

import torch
from torch import Tensor

from lockstep.base.config_error import require
from lockstep.datamodules.download import DataFile, fetch
from lockstep.datamodules.tensors import InMemory, Split, check_size

SAMPLES = 60_000  # to train and validate
MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")
FILES = (
    DataFile("train-images-idx3-ubyte", 47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    DataFile("train-labels-idx1-ubyte", 60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    DataFile("t10k-images-idx3-ubyte", 7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    DataFile("t10k-labels-idx1-ubyte", 10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)
"""A magic number and the sizes, as 32-bit integers, then bytes."""


def read(root: str, file: DataFile) -> bytearray:
    """Return the uncompressed bytes of a file in MNIST/raw, plain or .gz; download it if it is missing."""
    plain = Path(root) / "MNIST" / "raw" / file.name
    packed = plain.with_name(f"{file.name}.gz")
    path = plain if os.path.isfile(plain) else packed  # noqa: PTH113  # False in a locked folder
    return fetch(root, file, path, [f"{mirror}{packed.name}" for mirror in MIRRORS])


class MNIST(InMemory):
    """uint8 images (n, 1, 28, 28) and classes: the first `samples` and last `val_size` of 60,000; 10,000 to test."""

    sample_shape, num_outputs, num_classes = (1, 28, 28), 10, 10
    class_names = tuple("0123456789")

    def __init__(
        self,
        root: str = "data",
        batch_size: int = 64,
        samples: int | None = None,
        val_size: int = 5000,
        mean: float = 0.1307,
        std: float = 0.3081,
    ) -> None:
        """`root`: the folder that holds MNIST/raw, or gets it. `samples`: to train on; None: all but `val_size`."""
        super().__init__(batch_size)
        check_size("val_size", val_size, SAMPLES)
        if samples is not None:
            check_size("samples", samples, SAMPLES - val_size + 1, least=1)
        require(std > 0, "data.std", std, "it must be above 0", "data.std=0.3081")
        self.save_hyperparameters(logger=False)
        self.root, self.samples, self.val_size, self.mean, self.std = root, samples, val_size, mean, std

    def prepare_data(self) -> None:
        """Check the four files below `root`; download the missing ones."""
        for file in FILES:
            read(self.root, file)

    def load(self) -> dict[str, Split]:
        images, labels, test_images, test_labels = (_tensor(self.root, file) for file in FILES)
        end = len(images) - self.val_size
        train = images[:end][: self.samples], labels[:end][: self.samples]
        return {"train": train, "val": (images[end:], labels[end:]), "test": (test_images, test_labels)}


def _tensor(root: str, file: DataFile) -> Tensor:
    content = read(root, file)
    if "images" in file.name:
        return torch.frombuffer(content, dtype=torch.uint8, offset=16).view(-1, 1, 28, 28)
    return torch.frombuffer(content, dtype=torch.uint8, offset=8).long()
