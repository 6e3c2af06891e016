"""Downloading files: one process of a machine at a time, within a bounded time, and checked before they are saved."""

import time
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from lockstep.config_error import ConfigError, config_error
from lockstep.files import atomic_write

DOWNLOAD_TIMEOUT = 15
"""Seconds without a byte after which an address is given up."""
DOWNLOAD_LIMIT = 300
"""Seconds that a file may take."""
LOCK = ".download.lock"


class RemoteFile(NamedTuple):
    """A file at any of some addresses: at most `max_bytes`, of which `problem` returns what is wrong, or nothing."""

    name: str
    urls: Sequence[str]
    max_bytes: int
    problem: Callable[[bytes], str]


def download(data: str, root: Path, folder: Path, files: Sequence[RemoteFile]) -> None:
    """Save files in a folder, which is at or below data.root, unless they are there.

    Raises:
        ConfigError: the folder cannot be written or is locked for too long, or no address has a file.
    """
    addresses = sum(len(file.urls) for file in files)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / LOCK, timeout=addresses * DOWNLOAD_LIMIT):
            for file in files:
                if not (folder / file.name).exists():  # another process may have saved it before this one got the lock
                    _download(data, root, folder / file.name, file)
    except Timeout:
        reason = f"another process holds {folder / LOCK}, longer than any download takes"
        raise config_error("data.root", root, reason, "another folder, or end that process") from None
    except OSError as error:
        reason = f"it cannot hold the download ({error.strerror})"
        raise config_error("data.root", root, reason, "a writable folder") from None


def _download(data: str, root: Path, path: Path, file: RemoteFile) -> None:
    reasons = []
    for url in file.urls:
        try:
            content = _content(url, file.max_bytes)
            reason = file.problem(content)
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
