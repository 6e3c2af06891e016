"""MNIST from its four idx files: found below a folder (plain or .gz) or downloaded once, and checked to the last bit.

Source of the format: Y. LeCun, C. Cortes, C. Burges, The MNIST Database of Handwritten Digits.
"""

import contextlib
import gzip
import hashlib
import io
import time
import urllib.request
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from filelock import FileLock, Timeout

from lockstep.config_error import ConfigError, config_error

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.data.tensors import TensorData

LOCK = ".download.lock"
DOWNLOAD_TIMEOUT = 15
"""Seconds without a byte after which the next mirror is tried."""
DOWNLOAD_LIMIT = 300
"""Seconds that a mirror has for one file, however it trickles in."""


@dataclass(frozen=True)
class IdxFile:
    """One of the four: what its content must be, uncompressed."""

    name: str
    magic: int
    sizes: tuple[int, ...]
    sha256: str

    @property
    def header(self) -> bytes:
        """Magic number and sizes, big-endian 32-bit integers."""
        return b"".join(number.to_bytes(4, "big") for number in (self.magic, *self.sizes))

    @property
    def length(self) -> int:
        """Bytes of the whole file."""
        cells = 1
        for size in self.sizes:
            cells *= size
        return len(self.header) + cells


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
    """Check the four files below `root`; download those that are not there. One process of a machine does it at a time.

    Raises:
        ConfigError: a file is damaged, or missing and not to be had.
    """
    folder = Path(root)
    try:
        if folder.exists() and not folder.is_dir():
            raise config_error("data.root", root, "it is a file", "the folder that holds (or will hold) MNIST/raw")
        missing = [file for file in FILES if find(folder, file) is None]
    except OSError as error:
        raise _unreadable(root, Path(error.filename or root), error) from None
    if missing:
        _download_missing(folder, missing)
    for file in FILES:
        _check_bits(file, _content(folder, file), find(folder, file))


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


def find(root: Path, file: IdxFile) -> Path | None:
    """Where the file lies below `root`, if it does."""
    folders = (root / "MNIST" / "raw", root / "raw", root)
    candidates = [folder / (file.name + ending) for folder in folders for ending in ("", ".gz")]
    return next((path for path in candidates if path.is_file()), None)


def _tensor(root: Path, file: IdxFile) -> "Tensor":
    import torch

    return torch.frombuffer(_content(root, file), dtype=torch.uint8, offset=len(file.header)).view(file.sizes)


def _content(root: Path, file: IdxFile) -> bytearray:
    """The uncompressed bytes, of the right length and header. A bytearray, so that a tensor can share its memory."""
    path = find(root, file)
    if path is None:
        raise config_error("data.root", root, f"{file.name} has vanished from it", "the folder that holds MNIST/raw")
    try:
        with path.open("rb") as stream:
            content = _uncompressed(stream, file) if path.suffix == ".gz" else _read(stream, file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, "a whole gzip file", str(error) or type(error).__name__) from None
    except OSError as error:
        raise _unreadable(root, path, error) from None
    if len(content) != file.length:
        found = "more" if len(content) > file.length else f"{len(content)}"
        raise _damaged(path, f"{file.length} bytes", found)
    if content[: len(file.header)] != file.header:
        raise _damaged(path, f"the header {file.header.hex()}", content[: len(file.header)].hex())
    return content


def _uncompressed(packed: BinaryIO, file: IdxFile) -> bytearray:
    """What a gzip file holds, see `_read`; its checksum is looked at where its content ends."""
    with gzip.GzipFile(fileobj=packed) as stream:
        return _read(stream, file)


def _read(stream: BinaryIO | gzip.GzipFile, file: IdxFile) -> bytearray:
    """The content of one of the four, and a byte more where there is more: six megabytes may unpack to gigabytes."""
    content = bytearray(file.length + 1)
    view, held = memoryview(content), 0
    while held < len(content) and (count := stream.readinto(view[held:])):  # type: ignore[union-attr]
        held += count
    view.release()
    del content[held:]
    return content


def _check_bits(file: IdxFile, content: bytearray, path: Path | None) -> None:
    if (found := hashlib.sha256(content).hexdigest()) != file.sha256:
        raise _damaged(path, f"SHA-256 {file.sha256}", found)


def _unreadable(root: str | Path, path: Path, error: OSError) -> ConfigError:
    why = f"{path} cannot be read ({error.strerror})"
    return config_error("data.root", root, why, "a folder that can be, or data=digits, which needs no file")


def _damaged(path: Path | None, expected: str, found: str) -> ConfigError:
    instead = "replace it by MNIST's own, or write data=digits, which needs no file"
    return ConfigError(f"data=mnist: {path} is damaged: expected {expected}, found {found}; {instead}.")


def _download_missing(root: Path, missing: Sequence[IdxFile]) -> None:
    from torchvision.datasets import MNIST

    folder = root / "MNIST" / "raw"
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / LOCK, timeout=len(FILES) * len(MNIST.mirrors) * DOWNLOAD_LIMIT):
            for file in missing:
                if find(root, file) is None:  # another process may have brought it while this one waited
                    _download(file, folder, MNIST.mirrors)
    except Timeout:
        why = f"another process holds {folder / LOCK}, longer than any download takes"
        raise config_error("data.root", root, why, "another folder, or end that process") from None
    except OSError as error:
        why = f"it cannot hold the download ({error.strerror})"
        raise config_error("data.root", root, why, "a writable folder") from None
    except ConfigError:
        _remove_if_empty(folder, new)
        raise


def _remove_if_empty(folder: Path, new: Sequence[Path]) -> None:
    """Take back the folders of a download that brought nothing: the path may have been a slip of the finger."""
    if new and {path.name for path in folder.iterdir()} == {LOCK}:
        (folder / LOCK).unlink()
        for path in new:
            with contextlib.suppress(OSError):
                path.rmdir()


def _fetched(url: str, most: int) -> bytes:
    """The first `most` bytes behind an address.

    Raises:
        OSError: nobody answers, or not within the time that there is.
    """
    content, deadline = bytearray(), time.monotonic() + DOWNLOAD_LIMIT
    with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT) as answer:
        while len(content) < most and (part := answer.read1(most - len(content))):
            content += part
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(content)} bytes within {DOWNLOAD_LIMIT} s")
    return bytes(content)


def _download(file: IdxFile, folder: Path, mirrors: Sequence[str]) -> None:
    """Fetch the .gz from the first mirror that has it whole, to a temporary name, and rename it when it is proved."""
    reasons = []
    for mirror in mirrors:
        url = f"{mirror}{file.name}.gz"
        try:
            packed = _fetched(url, 2 * file.length)  # packed it is smaller
            if hashlib.sha256(_uncompressed(io.BytesIO(packed), file)).hexdigest() == file.sha256:
                part = folder / f".{file.name}.gz.part"
                part.write_bytes(packed)
                part.replace(folder / f"{file.name}.gz")
                return
            reasons.append(f"{url}: its bits are not MNIST's")
        except (OSError, EOFError, zlib.error) as error:
            reasons.append(f"{url}: {getattr(error, 'reason', None) or error}")
    raise ConfigError(
        f"data=mnist: {file.name} is not below data.root={folder.parents[1]} and could not be downloaded "
        f"({'; '.join(reasons)}); put MNIST's four files, plain or .gz, into {folder}, "
        "or write data=digits, which needs no file."
    )
