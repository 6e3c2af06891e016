"""Downloading files: one process of a machine at a time, within a bounded time, and checked first."""

import contextlib
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from lockstep.config_error import ConfigError, config_error
from lockstep.files import atomic_write

DOWNLOAD_TIMEOUT = 15
"""Seconds without a byte after which it is given up."""
DOWNLOAD_LIMIT = 300
"""Seconds that one file has, however it trickles in."""


def download(
    data: str, root: Path, path: Path, urls: Iterable[str], most: int, problem: Callable[[bytes], str]
) -> None:
    """Save a file, of `most` bytes, from the first address whose content has no `problem`.

    Raises:
        ConfigError: there is none.
    """
    reasons = []
    for url in urls:
        try:
            content = _content(url, most)
            if not (reason := problem(content)):
                with atomic_write(path) as part:
                    part.write_bytes(content)
                return
        except (OSError, EOFError, zlib.error) as error:
            reason = str(getattr(error, "reason", None) or error)
        reasons.append(f"{url}: {reason}")
    raise ConfigError(
        f"data={data}: {path.name} is not below data.root={root} and could not be downloaded ({'; '.join(reasons)}); "
        f"put it into {path.parent}, or write data=digits, which needs no file."
    )


def _content(url: str, most: int) -> bytes:
    """Return the first `most` bytes behind an address.

    Raises:
        OSError: no answer, or not within DOWNLOAD_LIMIT.
    """
    content, deadline = bytearray(), time.monotonic() + DOWNLOAD_LIMIT
    with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT) as answer:
        while len(content) < most and (part := answer.read1(most - len(content))):
            content += part
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(content)} bytes within {DOWNLOAD_LIMIT} s")
    return bytes(content)


@contextlib.contextmanager
def downloading(root: Path, folder: Path, lock: str, files: int) -> Iterator[None]:
    """Lock a download of so many files into `folder`, below data.root.

    A failed download removes the folders that it has created: the path may be mistyped.

    Raises:
        ConfigError: the folder cannot be written, or is locked for too long.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / lock, timeout=files * DOWNLOAD_LIMIT):
            yield
    except Timeout:
        reason = f"another process holds {folder / lock}, longer than any download takes"
        raise config_error("data.root", root, reason, "another folder, or end that process") from None
    except OSError as error:
        reason = f"it cannot hold the download ({error.strerror})"
        raise config_error("data.root", root, reason, "a writable folder") from None
    except ConfigError:
        if new and [path.name for path in folder.iterdir()] == [lock]:
            (folder / lock).unlink()
            for path in new:
                with contextlib.suppress(OSError):
                    path.rmdir()
        raise
