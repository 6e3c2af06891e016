"""MNIST: its four files, plain or .gz, or downloaded from torchvision's mirrors.

Source: Y. LeCun, C. Cortes, C. Burges, The MNIST Database of Handwritten Digits.
"""

import gzip
import hashlib
import io
import math
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from lockstep.config_error import ConfigError, config_error
from lockstep.data.download import RemoteFile, download

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.data.tensors import TensorData


class IdxFile(NamedTuple):
    """A file of MNIST: a magic number and sizes, 32-bit integers, then bytes; and the SHA-256 of it uncompressed."""

    name: str
    sizes: tuple[int, ...]
    sha256: str

    @property
    def header_length(self) -> int:
        return 4 + 4 * len(self.sizes)

    @property
    def length(self) -> int:
        """Return the bytes of the uncompressed file."""
        return self.header_length + math.prod(self.sizes)

    def content(self, stream: IO[bytes] | gzip.GzipFile) -> bytearray:
        """Return the content, and one byte more of a longer one: six megabytes may unpack to gigabytes."""
        return bytearray(stream.read(self.length + 1))

    def problem(self, packed: bytes) -> str:
        """Return what is wrong with a downloaded .gz file."""
        content = self.content(gzip.GzipFile(fileobj=io.BytesIO(packed)))
        return "" if hashlib.sha256(content).hexdigest() == self.sha256 else "its bits are not MNIST's"


IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
FILES = (
    IdxFile(f"train-{IMAGES}", (60_000, 28, 28), "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    IdxFile(f"train-{LABELS}", (60_000,), "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    IdxFile(f"t10k-{IMAGES}", (10_000, 28, 28), "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    IdxFile(f"t10k-{LABELS}", (10_000,), "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)


def find(root: Path, file: IdxFile) -> Path | None:
    """Return the path of a file below `root`, plain or .gz, or None."""
    folders = (root / "MNIST" / "raw", root / "raw", root)
    candidates = [folder / (file.name + suffix) for folder in folders for suffix in ("", ".gz")]
    return next((path for path in candidates if path.is_file()), None)


def read(root: Path, file: IdxFile, check: bool = False) -> bytearray:
    """Return the uncompressed bytes, of the right length. A bytearray, so that a tensor can share its memory.

    Args:
        check: whether to compare the SHA-256.

    Raises:
        ConfigError: the file is missing, cannot be read, or is damaged.
    """
    path = find(root, file)
    if path is None:
        raise config_error("data.root", root, f"{file.name} is no longer there", "the folder that holds MNIST/raw")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            content = file.content(stream)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, "a whole gzip file", str(error) or type(error).__name__) from None
    except OSError as error:
        raise _unreadable(root, path, error) from None
    if len(content) != file.length:
        raise _damaged(path, f"{file.length} bytes", "more" if len(content) > file.length else f"{len(content)}")
    if check and (digest := hashlib.sha256(content).hexdigest()) != file.sha256:
        raise _damaged(path, f"SHA-256 {file.sha256}", digest)
    return content


def _unreadable(root: Path, path: Path, error: OSError) -> ConfigError:
    reason = f"{path} cannot be read ({error.strerror})"
    return config_error("data.root", root, reason, "a folder that can be, or data=digits, which needs no file")


def _damaged(path: Path, expected: str, actual: str) -> ConfigError:
    hint = "replace it by MNIST's own, or write data=digits, which needs no file"
    return ConfigError(f"data=mnist: {path} is damaged: expected {expected}, found {actual}; {hint}.")


def prepare(root: str) -> None:
    """Check the four files below `root`; download the missing ones.

    Raises:
        ConfigError: a file is damaged, or missing and cannot be downloaded.
    """
    folder = Path(root)
    try:
        if folder.exists() and not folder.is_dir():
            raise config_error("data.root", root, "it is a file", "the folder that holds (or will hold) MNIST/raw")
        missing = [file for file in FILES if find(folder, file) is None]
    except OSError as error:
        raise _unreadable(folder, Path(error.filename or root), error) from None
    if missing:
        from torchvision.datasets import MNIST

        remote = [
            RemoteFile(name, [mirror + name for mirror in MNIST.mirrors], 2 * file.length, file.problem)
            for file, name in ((file, f"{file.name}.gz") for file in missing)
        ]
        download("mnist", folder, folder / "MNIST" / "raw", remote)
    for file in FILES:
        read(folder, file, check=True)


def load(root: str, val_size: int, mean: float, std: float, samples: int | None = None) -> "TensorData":
    """Return uint8 images (n, 1, 28, 28) and classes. The last `val_size` of the 60,000 are the validation split.

    Args:
        samples: train on so many of the first alone.
    """
    from lockstep.data.tensors import Split, TensorData, split_three

    images, labels, test_images, test_labels = (_tensor(Path(root), file) for file in FILES)
    train, val, _ = split_three(images[:, None], labels.long(), val_size, 0)
    train = Split(train.inputs[:samples], train.targets[:samples])
    test = Split(test_images[:, None], test_labels.long())
    return TensorData(train, val, test, outputs=10, mean=mean, std=std)


def _tensor(root: Path, file: IdxFile) -> "Tensor":
    import torch

    return torch.frombuffer(read(root, file), dtype=torch.uint8, offset=file.header_length).view(file.sizes)
