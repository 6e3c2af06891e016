"""Published files: downloaded by one process of a machine at a time, within a bounded time, and checked before use."""

import gzip
import hashlib
import time
import urllib.request
import zlib
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple

from filelock import FileLock

from lockstep.base.config_error import config_error
from lockstep.base.files import atomic_write

DOWNLOAD_TIMEOUT = 15  # seconds without a byte after which an address is given up
DOWNLOAD_LIMIT = 300  # seconds that a file may take
FILES_AT_ONCE = 8  # downloads that a process may wait for at most
ERRORS = (OSError, EOFError, ValueError, zlib.error)


class DataFile(NamedTuple):
    """A published file: its length in bytes and its SHA-256, both of the content, which gzip may have packed."""

    name: str
    length: int
    sha256: str

    def read(self, stream: IO[bytes], name: str) -> bytearray:
        """Return the content, decompressed if the file has another name. A tensor can share a bytearray's memory."""
        packed = name != self.name  # six megabytes may unpack to gigabytes
        content = bytearray((gzip.GzipFile(fileobj=stream) if packed else stream).read(self.length + 1))
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            count = "more" if len(content) > self.length else len(content)
            raise ValueError(f"expected {self.length} bytes, SHA-256 {self.sha256}; found {count}, {digest}")
        return content


def fetch(root: str, file: DataFile, path: Path, urls: Sequence[str]) -> bytearray:
    """Return the content of a file, downloaded if it is not there. `root` is the setting `data.root`, for errors."""
    try:
        if not path.exists():
            _download(file, path, urls)
        with path.open("rb") as stream:
            return file.read(stream, path.name)
    except ERRORS as error:
        reason = f"{path} cannot be read or downloaded ({error})"
        raise config_error("data.root", root, reason, "data=digits, which needs no file, or another folder") from None


def _download(file: DataFile, path: Path, urls: Sequence[str]) -> None:
    created = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    lock, errors = path.with_name(".download.lock"), []
    with FileLock(lock, timeout=FILES_AT_ONCE * DOWNLOAD_LIMIT):
        if not path.exists():
            print(f"downloading {path}", flush=True)
        for url in () if path.exists() else urls:  # another process may have saved it before this one got the lock
            try:
                content = _content(url, 2 * file.length)
                file.read(BytesIO(content), Path(url).name)
            except ERRORS as error:
                errors.append(f"{url}: {error}")
            else:
                with atomic_write(path) as temporary:
                    temporary.write_bytes(content)
                return
    if errors:
        lock.unlink(missing_ok=True)
        with suppress(OSError):  # they are not empty
            for folder in created:
                folder.rmdir()
        raise OSError("; ".join(errors))


def _content(url: str, max_bytes: int) -> bytes:
    """Return the first `max_bytes` at an address."""
    content, deadline = bytearray(), time.monotonic() + DOWNLOAD_LIMIT
    with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT) as answer:
        while len(content) < max_bytes and (chunk := answer.read1(max_bytes - len(content))):
            content += chunk
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(content)} bytes within {DOWNLOAD_LIMIT} s")
    return bytes(content)
