"""The files of checkpoints: written atomically, and checked for damage before they are read.

last.ckpt is the newest, previous.ckpt the one before it, best.ckpt that of the best epoch.
"""

import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from lockstep.files import atomic_write, sync_folder

FOLDER = "checkpoints"
LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"


def write_synced(path: Path, write: Callable[[BinaryIO], None], backup: str = "", also: str = "") -> None:
    """Write and sync a file under a temporary name, then rename it: a reader sees the old file or the new one.

    Args:
        backup: the name under which the old file is kept, if any.
        also: a second name of the new file.

    Raises:
        OSError: it cannot be written; the old file is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if backup and path.exists():
            hardlink(path, backup)
        if also:
            hardlink(temporary, also)
    sync_folder(path.parent)


def hardlink(path: Path, name: str) -> None:
    """Give a file a second name, replacing the file of that name. Files are never modified in place."""
    with atomic_write(path.with_name(name)) as temporary:
        temporary.unlink(missing_ok=True)
        try:
            os.link(path, temporary)
        except OSError:  # a file system without links
            shutil.copyfile(path, temporary)


def damage(path: Path) -> str | None:
    """Return why a checkpoint file is damaged, or None if every checksum matches."""
    try:
        with zipfile.ZipFile(path) as archive:
            return None if archive.testzip() is None else "its checksums are wrong"
    except OSError as error:
        return error.strerror or type(error).__name__
    except Exception:  # a damaged archive may raise anything
        return "it is no complete checkpoint file"
