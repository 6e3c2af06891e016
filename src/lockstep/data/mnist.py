"""MNIST: its four files, plain or .gz, or downloaded.

Source: Y. LeCun, C. Cortes, C. Burges, The MNIST Database of Handwritten Digits.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.data.download import DataFile, fetch

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.data.samples import Splits

MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")
FILES = (
    DataFile("train-images-idx3-ubyte", 47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    DataFile("train-labels-idx1-ubyte", 60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    DataFile("t10k-images-idx3-ubyte", 7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    DataFile("t10k-labels-idx1-ubyte", 10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)
"""A magic number and the sizes, as 32-bit integers, then bytes."""


def find(root: Path, file: DataFile) -> Path | None:
    """Return the path of a file below `root`, plain or .gz, or None."""
    folders = (root / "MNIST" / "raw", root / "raw", root)
    candidates = [folder / (file.name + suffix) for folder in folders for suffix in ("", ".gz")]
    return next((path for path in candidates if os.path.isfile(path)), None)  # noqa: PTH113  # False in a locked folder


def read(root: str, file: DataFile) -> bytearray:
    """Return the uncompressed bytes of a file; download it if it is missing."""
    path = find(Path(root), file) or Path(root) / "MNIST" / "raw" / f"{file.name}.gz"
    return fetch(root, file, path, [f"{mirror}{file.name}.gz" for mirror in MIRRORS])


def prepare(root: str) -> None:
    """Check the four files below `root`; download the missing ones."""
    for file in FILES:
        read(root, file)


def load(root: str, val_size: int, mean: float, std: float, samples: int | None = None) -> "Splits":
    """Return uint8 images (n, 1, 28, 28) and classes: the first `samples` and last `val_size` of 60,000; 10,000."""
    from lockstep.data.samples import Splits
    from lockstep.data.tensors import Split

    images, labels, test_images, test_labels = (_tensor(root, file) for file in FILES)
    end = len(images) - val_size
    train = Split(images[:end][:samples], labels[:end][:samples], mean, std)
    val = Split(images[end:], labels[end:], mean, std)
    return Splits(train, val, Split(test_images, test_labels, mean, std), outputs=10)


def _tensor(root: str, file: DataFile) -> "Tensor":
    import torch

    content = read(root, file)
    if "images" in file.name:
        return torch.frombuffer(content, dtype=torch.uint8, offset=16).view(-1, 1, 28, 28)
    return torch.frombuffer(content, dtype=torch.uint8, offset=8).long()
