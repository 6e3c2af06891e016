"""Downloading CIFAR-10's binary version from its authors."""

import hashlib
from pathlib import Path

from lockstep.config_error import ConfigError
from lockstep.data.download import downloading, fetched

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
    with downloading(root, root, LOCK, files=2):
        if not (root / ARCHIVE).exists():
            _download(root)


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
