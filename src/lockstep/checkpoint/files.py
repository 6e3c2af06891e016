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


def write_whole(path: Path, write: Callable[[BinaryIO], None], before: str = "", also: str = "") -> None:
    """Write and sync a file under a temporary name, then rename it: a reader sees the old one or the new.

    Args:
        before: the name that the file keeps which was there before, if any.
        also: a second name of the new one.

    Raises:
        OSError: it cannot be written; what was there before still is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if before and path.exists():
            hardlink(path, before)
        if also:
            hardlink(part, also)
    sync_folder(path.parent)


def hardlink(path: Path, name: str) -> None:
    """Give a file a second name, replacing what has it: by a link, since files are never modified."""
    with atomic_write(path.with_name(name)) as part:
        part.unlink(missing_ok=True)
        try:
            os.link(path, part)
        except OSError:  # a file system without links
            shutil.copyfile(path, part)


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint's file; None if each of its parts has the checksum it was written with."""
    try:
        with zipfile.ZipFile(path) as archive:
            torn = archive.testzip()
    except OSError as error:
        return error.strerror or type(error).__name__
    except Exception:  # a damaged archive may raise anything
        return "it is no whole checkpoint file"
    return None if torn is None else "its checksums are wrong"
