"""MNIST: its four files, plain or .gz, or downloaded from torchvision's mirrors, and the data set made of them.

Source: Y. LeCun, C. Cortes, C. Burges, The MNIST Database of Handwritten Digits.
"""

import gzip
import hashlib
import io
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from lockstep.config_error import ConfigError, config_error
from lockstep.data.download import download, downloading

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.data.tensors import TensorData


@dataclass(frozen=True)
class IdxFile:
    """A file of MNIST: what its content must be, uncompressed."""

    name: str
    sizes: tuple[int, ...]
    sha256: str

    @property
    def header_length(self) -> int:
        """Bytes of the magic number and the sizes, 32-bit integers."""
        return 4 + 4 * len(self.sizes)

    @property
    def length(self) -> int:
        """Bytes of the file."""
        return self.header_length + math.prod(self.sizes)


TRAIN_IMAGES = IdxFile(
    "train-images-idx3-ubyte",
    (60_000, 28, 28),
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
)
TRAIN_LABELS = IdxFile(
    "train-labels-idx1-ubyte", (60_000,), "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
)
TEST_IMAGES = IdxFile(
    "t10k-images-idx3-ubyte",
    (10_000, 28, 28),
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
)
TEST_LABELS = IdxFile(
    "t10k-labels-idx1-ubyte", (10_000,), "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
)
FILES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)


def find(root: Path, file: IdxFile) -> Path | None:
    """Its path below `root`, plain or .gz, if it is there."""
    folders = (root / "MNIST" / "raw", root / "raw", root)
    candidates = [folder / (file.name + ending) for folder in folders for ending in ("", ".gz")]
    return next((path for path in candidates if path.is_file()), None)


def read(root: Path, file: IdxFile, check: bool = False) -> bytearray:
    """Return the uncompressed bytes, of the right length. A bytearray, so that a tensor can share its memory.

    Args:
        check: whether to compare the SHA-256.

    Raises:
        ConfigError: it is not there, cannot be read, or is damaged.
    """
    path = find(root, file)
    if path is None:
        raise config_error("data.root", root, f"{file.name} is no longer there", "the folder that holds MNIST/raw")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            content = read_bounded(stream, file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, "a whole gzip file", str(error) or type(error).__name__) from None
    except OSError as error:
        raise unreadable(root, path, error) from None
    if len(content) != file.length:
        raise _damaged(path, f"{file.length} bytes", "more" if len(content) > file.length else f"{len(content)}")
    if check and (digest := hashlib.sha256(content).hexdigest()) != file.sha256:
        raise _damaged(path, f"SHA-256 {file.sha256}", digest)
    return content


def read_bounded(stream: IO[bytes] | gzip.GzipFile, file: IdxFile) -> bytearray:
    """Return the content, and a byte more where there is more: six megabytes may unpack to gigabytes."""
    return bytearray(stream.read(file.length + 1))


def unreadable(root: str | Path, path: Path, error: OSError) -> ConfigError:
    reason = f"{path} cannot be read ({error.strerror})"
    return config_error("data.root", root, reason, "a folder that can be, or data=digits, which needs no file")


def _damaged(path: Path, expected: str, found: str) -> ConfigError:
    hint = "replace it by MNIST's own, or write data=digits, which needs no file"
    return ConfigError(f"data=mnist: {path} is damaged: expected {expected}, found {found}; {hint}.")


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
        download_missing(folder)
    for file in FILES:
        read(folder, file, check=True)


def download_missing(root: Path) -> None:
    """Fetch the files that are not below `root` into its MNIST/raw.

    Raises:
        ConfigError: the folder cannot be written or is locked for too long, or no mirror has a file.
    """
    from torchvision.datasets import MNIST

    folder = root / "MNIST" / "raw"
    with downloading(root, folder, ".download.lock", len(FILES) * len(MNIST.mirrors)):
        for file in FILES:
            if find(root, file) is not None:  # another process may have fetched it before this one had the lock
                continue

            def problem(packed: bytes, file: IdxFile = file) -> str:
                content = read_bounded(gzip.GzipFile(fileobj=io.BytesIO(packed)), file)
                return "" if hashlib.sha256(content).hexdigest() == file.sha256 else "its bits are not MNIST's"

            urls = [f"{mirror}{file.name}.gz" for mirror in MNIST.mirrors]
            download("mnist", root, folder / f"{file.name}.gz", urls, 2 * file.length, problem)


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

    return torch.frombuffer(read(root, file), dtype=torch.uint8, offset=file.header_length).view(file.sizes)
