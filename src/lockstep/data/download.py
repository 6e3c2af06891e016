"""Published files: downloaded by one process of a machine at a time, within a bounded time, and checked before use."""

import gzip
import hashlib
import time
import urllib.request
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple

from filelock import FileLock, Timeout

from lockstep.config_error import ConfigError, config_error
from lockstep.files import atomic_write

DOWNLOAD_TIMEOUT = 15
"""Seconds without a byte after which an address is given up."""
DOWNLOAD_LIMIT = 300
"""Seconds that a file may take."""
LOCK = ".download.lock"


class DataFile(NamedTuple):
    """A published file: its length in bytes and its SHA-256, both of the content, which gzip may have packed."""

    name: str
    length: int
    sha256: str

    def read(self, stream: IO[bytes], packed: bool) -> bytearray:
        """Return the content, and one byte more of a longer one: six megabytes may unpack to gigabytes."""
        return bytearray((gzip.open(stream) if packed else stream).read(self.length + 1))

    def problem(self, content: bytes | bytearray, check: bool = True) -> str:
        """Return why a content is wrong, or nothing; `check`: whether to compare the SHA-256."""
        if len(content) != self.length:
            return f"expected {self.length} bytes, found {'more' if len(content) > self.length else len(content)}"
        digest = hashlib.sha256(content).hexdigest() if check else self.sha256
        return "" if digest == self.sha256 else f"expected SHA-256 {self.sha256}, found {digest}"


def download(data: str, root: Path, folder: Path, files: Mapping[DataFile, Sequence[str]], packed: bool) -> None:
    """Save files in a folder, at or below data.root, unless they are there.

    Args:
        files: with the addresses of each.
        packed: whether gzip has packed them; their names then end in .gz.

    Raises:
        ConfigError: the folder cannot be written or is locked for too long, or no address has a file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / LOCK, timeout=sum(map(len, files.values())) * DOWNLOAD_LIMIT):
            for file, urls in files.items():
                path = folder / (f"{file.name}.gz" if packed else file.name)
                if not path.exists():  # another process may have saved it before this one got the lock
                    _download(data, root, path, file, urls, packed)
    except Timeout:
        reason = f"another process holds {folder / LOCK}, longer than any download takes"
        raise config_error("data.root", root, reason, "another folder, or end that process") from None
    except OSError as error:
        reason = f"it cannot hold the download ({error.strerror})"
        raise config_error("data.root", root, reason, "a writable folder") from None


def _download(data: str, root: Path, path: Path, file: DataFile, urls: Sequence[str], packed: bool) -> None:
    reasons = []
    for url in urls:
        try:
            content = _content(url, 2 * file.length)
            reason = file.problem(file.read(BytesIO(content), packed))
        except (OSError, EOFError, zlib.error) as error:
            reason = str(getattr(error, "reason", None) or error)
        if not reason:
            with atomic_write(path) as temporary:
                temporary.write_bytes(content)
            return
        reasons.append(f"{url}: {reason}")
    raise ConfigError(
        f"data={data}: {path.name} is not below data.root={root} and could not be downloaded ({'; '.join(reasons)}); "
        f"put it into {path.parent}, or write data=digits, which needs no file."
    )


def _content(url: str, max_bytes: int) -> bytes:
    """Return the first `max_bytes` at an address.

    Raises:
        OSError: no answer, or not within DOWNLOAD_LIMIT.
    """
    content, deadline = bytearray(), time.monotonic() + DOWNLOAD_LIMIT
    with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT) as answer:
        while len(content) < max_bytes and (chunk := answer.read1(max_bytes - len(content))):
            content += chunk
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(content)} bytes within {DOWNLOAD_LIMIT} s")
    return bytes(content)
