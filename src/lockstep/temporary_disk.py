"""A temporary folder whose disk takes no more: a ConfigError that names TMPDIR."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lockstep.config_error import ConfigError, config_error

ROOM = 2**16
"""Bytes that a run may need there."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
"""Errors of a disk that takes nothing more, or nothing from this user."""


@contextmanager
def temporary_errors_as_config_errors(folder: Path) -> Iterator[None]:
    """Turn an error that comes of a full or read-only temporary folder into a ConfigError.

    Raises:
        ConfigError: naming TMPDIR.
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        why = why_no_room(folder) if is_disk_error(error) else None
        if why is None:
            raise
        raise tmpdir_error(f"{folder}: {why}") from None


def is_disk_error(error: BaseException | None) -> bool:
    """Whether an error, or one in its chain of causes, is a full disk's; C++ gives no errno, but the same words."""
    while error is not None:
        words = any(os.strerror(number).lower() in str(error).lower() for number in NO_ROOM)
        if words or (isinstance(error, OSError) and error.errno in NO_ROOM):
            return True
        error = error.__cause__ or error.__context__
    return False


def why_no_room(folder: Path) -> str | None:
    """Why nothing can be written in a folder; None if something can, or the folder is gone."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            require_room(file.fileno())
    except OSError as error:
        return error.strerror if error.errno in NO_ROOM else None
    return None


def tmpdir_error(why: str) -> ConfigError:
    return config_error(
        "TMPDIR",
        os.environ.get("TMPDIR", "/tmp"),
        f"no temporary folder can be used ({why})",
        "TMPDIR=FOLDER, of your own, with room",
    )


def require_room(descriptor: int) -> None:
    """Raises OSError."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, ROOM)
            os.ftruncate(descriptor, 0)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise
