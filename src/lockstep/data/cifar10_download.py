"""Downloading CIFAR-10's binary version from its authors: one process of a machine at a time, within a bounded time."""

import hashlib
from pathlib import Path

from filelock import FileLock, Timeout

from lockstep.config_error import ConfigError, config_error
from lockstep.data.download import DOWNLOAD_LIMIT, fetched

ARCHIVE = "cifar-10-binary.tar.gz"
URL = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}"
SIZE = 170_052_171
SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
LOCK = ".cifar10.lock"


def download(root: Path) -> None:
    """Fetch the archive into `root`, unless another process has just done so; checked by its SHA-256.

    Raises:
        ConfigError: the folder cannot be written or is locked for too long, or the archive cannot be had.
    """
    new = not root.exists()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / LOCK, timeout=2 * DOWNLOAD_LIMIT):
            if not (root / ARCHIVE).exists():
                _download(root)
    except Timeout:
        why = f"another process holds {root / LOCK}, longer than the download takes"
        raise config_error("data.root", root, why, "another folder, or end that process") from None
    except OSError as error:
        why = f"it cannot hold the download ({error.strerror})"
        raise config_error("data.root", root, why, "a writable folder") from None
    except ConfigError:
        if new:  # the path may be mistyped
            (root / LOCK).unlink(missing_ok=True)
            root.rmdir()
        raise


def _download(root: Path) -> None:
    """Under a temporary name, renamed once it is checked."""
    try:
        content = fetched(URL, SIZE + 1)
        found = hashlib.sha256(content).hexdigest()
        why = "" if found == SHA256 else f"its SHA-256 is {found}"
    except OSError as error:
        why = str(getattr(error, "reason", None) or error)
    if why:
        raise ConfigError(
            f"data=cifar10: {ARCHIVE} is not below data.root={root} and could not be downloaded ({URL}: {why}); "
            "put it there, or write data=digits, which needs no file."
        )
    part = root / f".{ARCHIVE}.part"
    part.write_bytes(content)
    part.replace(root / ARCHIVE)
