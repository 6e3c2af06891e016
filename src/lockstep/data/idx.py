"""idx files: the format, where one is found below a folder (plain or .gz), and reading it, checked to the last bit.

Source of the format: Y. LeCun, C. Cortes, C. Burges, The MNIST Database of Handwritten Digits.
"""

import gzip
import hashlib
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lockstep.config_error import ConfigError, config_error


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
    why = f"{path} cannot be read ({error.strerror})"
    return config_error("data.root", root, why, "a folder that can be, or data=digits, which needs no file")


def _damaged(path: Path, expected: str, found: str) -> ConfigError:
    instead = "replace it by MNIST's own, or write data=digits, which needs no file"
    return ConfigError(f"data=mnist: {path} is damaged: expected {expected}, found {found}; {instead}.")
