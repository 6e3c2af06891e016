"""The files of checkpoints: their names, and reading them, after a check for damage.

last.ckpt is the newest, previous.ckpt the one before it, best.ckpt that of the best epoch.
"""

import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.files import atomic_write

FOLDER = "checkpoints"
LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"


def hardlink(path: Path, name: str) -> None:
    """Give a file a second name, replacing the file of that name. Files are never modified in place."""
    with atomic_write(path.with_name(name)) as temporary:
        temporary.unlink(missing_ok=True)
        try:
            os.link(path, temporary)
        except OSError:  # a file system without links
            shutil.copyfile(path, temporary)


class DamagedCheckpoint(Exception):
    """A file is no undamaged checkpoint; the message is the reason."""


def read_checkpoint(path: Path, mmap: bool = False) -> Mapping[str, Any]:
    """Load a checkpoint without running code from it, after checking every checksum, or raise DamagedCheckpoint."""
    from lockstep.safe_loading import load  # with torch

    try:
        with zipfile.ZipFile(path) as archive:
            intact = archive.testzip() is None
        checkpoint: Mapping[str, Any] = load(path, mmap=mmap) if intact else {}
    except OSError as error:
        raise DamagedCheckpoint(str(error.strerror)) from None
    except Exception as error:  # a damaged file may raise anything
        raise DamagedCheckpoint(f"it is no complete checkpoint of this project ({type(error).__name__})") from None
    if not intact:
        raise DamagedCheckpoint("its checksums are wrong")
    return checkpoint
