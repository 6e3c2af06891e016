"""Downloading MNIST's files from torchvision's mirrors: one process of a machine at a time, within a bounded time."""

import contextlib
import io
import zlib
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from lockstep.config_error import ConfigError, config_error
from lockstep.data.download import DOWNLOAD_LIMIT, fetched
from lockstep.data.idx import IdxFile, find, uncompressed

LOCK = ".download.lock"


def download(root: Path, files: Sequence[IdxFile]) -> None:
    """Fetch those of the files that are not below `root` into its MNIST/raw.

    Raises:
        ConfigError: the folder cannot be written or is locked for too long, or no mirror has a file.
    """
    from torchvision.datasets import MNIST

    folder = root / "MNIST" / "raw"
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / LOCK, timeout=len(files) * len(MNIST.mirrors) * DOWNLOAD_LIMIT):
            for file in files:
                if find(root, file) is None:  # after the lock: another process may have fetched it
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
    """Remove the folders that a failed download made: the path may be mistyped."""
    if new and {path.name for path in folder.iterdir()} == {LOCK}:
        (folder / LOCK).unlink()
        for path in new:
            with contextlib.suppress(OSError):
                path.rmdir()


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
