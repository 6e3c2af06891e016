"""A disk that is full or read-only: one sentence for a run's folder, one for the temporary folder."""

import errno
import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from lockstep.config_error import ConfigError, config_error, errors_as

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""What writing meets where there is no room, or no right to any. Errors of `write` do not say of which file."""
NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
"""Errors of a temporary folder that takes nothing more, or nothing from this user."""
ROOM = 2**16
"""Bytes that a run may need there."""


def disk_errors_as_config_errors(folder: Path | str) -> AbstractContextManager[None]:
    """Around what writes to a run's folder: the disk's own errors become its refusal."""

    def refusal(error: Exception) -> ConfigError | None:
        found = of_the_disk(error, Path(folder))
        return None if found is None else not_written(folder, found)

    return errors_as(refusal)


def silence_thread_errors(folder: Path | str) -> None:
    """Keep threads from printing errors of the disk: TensorBoard raises them again where the run writes next."""
    usual = threading.excepthook

    def hook(thrown: threading.ExceptHookArgs) -> None:
        if of_the_disk(thrown.exc_value, Path(folder)) is None:
            usual(thrown)

    threading.excepthook = hook


def not_written(folder: Path | str, error: OSError | None, what: str = "what the run leaves") -> ConfigError:
    """The refusal of a folder in which `what`, or the file that the error names, cannot be written."""
    named = Path(error.filename) if error and isinstance(error.filename, str) else None
    if error and _missing(Path(folder), named):
        return not_made(error)
    if named is not None and named != Path(folder) and named.is_relative_to(folder):
        what = str(named.relative_to(folder).with_name(named.name.removeprefix(".").removesuffix(".part")))
    reason = error.strerror if error and error.strerror else "the disk took only a part of it"
    reason = f"{what} cannot be written there ({reason})"
    hint = "a folder that you may write to" if error and error.errno in NO_RIGHT else "a folder with room for it"
    return config_error("hydra.run.dir", folder, reason, f"{hint}; checkpoints that were saved are kept")


def not_made(error: OSError, key: str = "hydra.run.dir") -> ConfigError:
    """The refusal of a folder that cannot be made."""
    reason = f"the run's folder cannot be made ({error.strerror})"
    return config_error(key, error.filename, reason, "a folder that can, or start the command elsewhere")


def of_the_disk(error: BaseException | None, folder: Path) -> OSError | None:
    """The disk's error among an error and those that led to it: no room, or the folder or a file of it fails."""
    for cause in causes(error):
        if isinstance(cause, OSError):
            named = Path(cause.filename) if isinstance(cause.filename, str) else None
            if (named.is_relative_to(folder) or _missing(folder, named)) if named else cause.errno in FULL:
                return cause
    return None


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _missing(folder: Path, named: Path | None) -> bool:
    """Whether the folder is not there, and the error names it, or one that it would lie in."""
    return named is not None and folder.is_relative_to(named) and not os.path.isdir(folder)  # noqa: PTH112


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Make a run's folder, and keep other commands out, by a lock that is gone with this process, however it ends.

    Raises:
        ConfigError: another command is in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reason = "another command is running in it"
            raise config_error("hydra.run.dir", folder, reason, "another folder, or wait for its end") from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process that a rank has left may hold the descriptor
        os.close(descriptor)


def temporary_errors_as_config_errors(folder: Path) -> AbstractContextManager[None]:
    """Around what writes to a temporary folder: the errors of a full or read-only one become the refusal of TMPDIR."""

    def refusal(error: Exception) -> ConfigError | None:
        reason = why_no_room(folder) if is_disk_error(error) else None
        return None if reason is None else tmpdir_error(f"{folder}: {reason}")

    return errors_as(refusal)


def is_disk_error(error: BaseException | None) -> bool:
    """Whether an error, or one in its chain of causes, is a full disk's; C++ gives no errno, but the same words."""
    texts = [os.strerror(number).lower() for number in NO_ROOM]
    return any(
        getattr(cause, "errno", None) in NO_ROOM or any(text in str(cause).lower() for text in texts)
        for cause in causes(error)
    )


def why_no_room(folder: Path) -> str | None:
    """Why nothing can be written in a folder; None if something can, or the folder is gone."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            require_room(file.fileno())
    except OSError as error:
        return error.strerror if error.errno in NO_ROOM else None
    return None


def tmpdir_error(reason: str) -> ConfigError:
    return config_error(
        "TMPDIR",
        os.environ.get("TMPDIR", "/tmp"),
        f"no temporary folder can be used ({reason})",
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
