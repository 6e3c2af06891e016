"""The files of checkpoints: written whole or not at all, and looked through for damage before anyone believes them.

last.ckpt is the newest, previous.ckpt the one before it, best.ckpt that of the best epoch. No torch is needed to find
them, so that a command can refuse before anything is started.
"""

import contextlib
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

FOLDER = "checkpoints"
LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"


def write_whole(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Fill a file under another name, see it on the disk, then rename it: a reader sees the old one or the new.

    Raises:
        OSError: it cannot be written; what was there before still is.
    """
    part = path.with_name(f".{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    _sync_folder(path.parent)


def also_as(path: Path, name: str) -> None:
    """Give a file a second name, in place of what had it: a link, since files are never written to again."""
    part = path.with_name(f".{name}.part")
    part.unlink(missing_ok=True)
    try:
        os.link(path, part)
    except OSError:  # a file system without links
        _copy(path, part)
    part.replace(path.with_name(name))


def _copy(path: Path, part: Path) -> None:
    try:
        shutil.copyfile(path, part)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint's file; None if it is whole: every part has the checksum it was written with."""
    try:
        with zipfile.ZipFile(path) as archive:
            torn = archive.testzip()
    except OSError as error:
        return error.strerror or type(error).__name__
    except Exception:  # a damaged archive raises whatever its bytes lead to
        return "it is no whole checkpoint file"
    return None if torn is None else "its checksums are wrong"


def newest_whole(runs: Iterable[Path]) -> tuple[Path | None, list[Path]]:
    """The newest checkpoint of these run folders that is not damaged, and the damaged ones that are newer."""
    found = [run / FOLDER / name for run in runs for name in (LAST, PREVIOUS)]
    there = sorted((path for path in found if path.is_file()), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    damaged: list[Path] = []
    for path in there:
        if damage(path) is None:
            return path, damaged
        damaged.append(path)
    return None, damaged


def _sync_folder(folder: Path) -> None:
    """So that the new name, too, outlives a loss of power, where folders can be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
