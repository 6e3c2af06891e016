"""Downloading MNIST's files from torchvision's mirrors."""

import io
import zlib
from collections.abc import Sequence
from pathlib import Path

from lockstep.config_error import ConfigError
from lockstep.data.download import downloading, fetched
from lockstep.data.idx import IdxFile, find, uncompressed

LOCK = ".download.lock"


def download(root: Path, files: Sequence[IdxFile]) -> None:
    """Fetch those of the files that are not below `root` into its MNIST/raw.

    Raises:
        ConfigError: the folder cannot be written or is locked for too long, or no mirror has a file.
    """
    from torchvision.datasets import MNIST

    folder = root / "MNIST" / "raw"
    with downloading(root, folder, LOCK, len(files) * len(MNIST.mirrors)):
        for file in files:
            if find(root, file) is None:  # after the lock: another process may have fetched it
                _download(file, folder, MNIST.mirrors)


def _download(file: IdxFile, folder: Path, mirrors: Sequence[str]) -> None:
    """Fetch the .gz from the first mirror with the right bits, under a temporary name, and rename it once checked."""
    reasons = []
    for mirror in mirrors:
        url = f"{mirror}{file.name}.gz"
        try:
            packed = fetched(url, 2 * file.length)  # packed it is smaller
            if file.has_digest(uncompressed(io.BytesIO(packed), file)):
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
