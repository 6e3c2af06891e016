"""idx files: the format, where one is found below a folder (plain or .gz), and reading it, checked to the last bit.

Source of the format: Y. LeCun, C. Cortes, C. Burges, The MNIST Database of Handwritten Digits.
"""

import gzip
import hashlib
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lockstep.config_error import ConfigError, config_error


@dataclass(frozen=True)
class IdxFile:
    """A file of MNIST: what its content must be, uncompressed."""

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
        return len(self.header) + math.prod(self.sizes)

    def has_digest(self, content: bytearray) -> bool:
        return hashlib.sha256(content).hexdigest() == self.sha256


def find(root: Path, file: IdxFile) -> Path | None:
    """Its path below `root`, plain or .gz, if it is there."""
    folders = (root / "MNIST" / "raw", root / "raw", root)
    candidates = [folder / (file.name + ending) for folder in folders for ending in ("", ".gz")]
    return next((path for path in candidates if path.is_file()), None)


def read(root: Path, file: IdxFile) -> bytearray:
    """The uncompressed bytes, of the right length and header. A bytearray, so that a tensor can share its memory.

    Raises:
        ConfigError: it is not there, cannot be read, or is damaged.
    """
    path = find(root, file)
    if path is None:
        raise config_error("data.root", root, f"{file.name} is no longer there", "the folder that holds MNIST/raw")
    try:
        with path.open("rb") as stream:
            content = uncompressed(stream, file) if path.suffix == ".gz" else _content(stream, file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, "a whole gzip file", str(error) or type(error).__name__) from None
    except OSError as error:
        raise unreadable(root, path, error) from None
    if len(content) != file.length:
        found = "more" if len(content) > file.length else f"{len(content)}"
        raise _damaged(path, f"{file.length} bytes", found)
    if content[: len(file.header)] != file.header:
        raise _damaged(path, f"the header {file.header.hex()}", content[: len(file.header)].hex())
    return content


def check(root: Path, file: IdxFile) -> None:
    """Read it and compare its SHA-256.

    Raises:
        ConfigError: see `read`; or its digest is another.
    """
    content = read(root, file)
    if not file.has_digest(content):
        raise _damaged(find(root, file), f"SHA-256 {file.sha256}", hashlib.sha256(content).hexdigest())


def uncompressed(packed: BinaryIO, file: IdxFile) -> bytearray:
    """The content of a gzip file, at most a byte longer than it should be; gzip checks its checksum at the end."""
    with gzip.GzipFile(fileobj=packed) as stream:
        return _content(stream, file)


def _content(stream: BinaryIO | gzip.GzipFile, file: IdxFile) -> bytearray:
    """The content, and a byte more where there is more: six megabytes may unpack to gigabytes."""
    return bytearray(stream.read(file.length + 1))


def unreadable(root: str | Path, path: Path, error: OSError) -> ConfigError:
    why = f"{path} cannot be read ({error.strerror})"
    return config_error("data.root", root, why, "a folder that can be, or data=digits, which needs no file")


def _damaged(path: Path | None, expected: str, found: str) -> ConfigError:
    instead = "replace it by MNIST's own, or write data=digits, which needs no file"
    return ConfigError(f"data=mnist: {path} is damaged: expected {expected}, found {found}; {instead}.")
