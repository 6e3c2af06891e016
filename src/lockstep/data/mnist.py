"""MNIST: its four files, found or downloaded, and the data set made of them."""

from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.config_error import config_error
from lockstep.data.idx import IdxFile, check, find, read, unreadable
from lockstep.data.mnist_download import download

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.data.tensors import TensorData

TRAIN_IMAGES = IdxFile(
    "train-images-idx3-ubyte",
    0x803,
    (60_000, 28, 28),
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
)
TRAIN_LABELS = IdxFile(
    "train-labels-idx1-ubyte", 0x801, (60_000,), "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
)
TEST_IMAGES = IdxFile(
    "t10k-images-idx3-ubyte",
    0x803,
    (10_000, 28, 28),
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
)
TEST_LABELS = IdxFile(
    "t10k-labels-idx1-ubyte", 0x801, (10_000,), "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
)
FILES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)


def prepare(root: str) -> None:
    """Check the four files below `root`; download those that are not there.

    Raises:
        ConfigError: a file is damaged, or missing and cannot be downloaded.
    """
    folder = Path(root)
    try:
        if folder.exists() and not folder.is_dir():
            raise config_error("data.root", root, "it is a file", "the folder that holds (or will hold) MNIST/raw")
        missing = any(find(folder, file) is None for file in FILES)
    except OSError as error:
        raise unreadable(root, Path(error.filename or root), error) from None
    if missing:
        download(folder, FILES)
    for file in FILES:
        check(folder, file)


def load(root: str, val_size: int, mean: float, std: float, samples: int | None = None) -> "TensorData":
    """Uint8 images (n, 1, 28, 28) and classes. The last `val_size` of the 60,000 are the validation split.

    samples: train on so many of the first alone.
    """
    from lockstep.data.tensors import Split, TensorData, split_three

    folder = Path(root)
    images, labels = _tensor(folder, TRAIN_IMAGES)[:, None], _tensor(folder, TRAIN_LABELS).long()
    train, val, _ = split_three(images, labels, val_size, 0)
    train = Split(train.inputs[:samples], train.targets[:samples])
    test = Split(_tensor(folder, TEST_IMAGES)[:, None], _tensor(folder, TEST_LABELS).long())
    return TensorData(train, val, test, outputs=10, mean=mean, std=std)


def _tensor(root: Path, file: IdxFile) -> "Tensor":
    import torch

    return torch.frombuffer(read(root, file), dtype=torch.uint8, offset=len(file.header)).view(file.sizes)
