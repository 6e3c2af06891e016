"""Turn the errors of a full or read-only disk into one sentence, and lock a run's folder."""

import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from lockstep.base.config_error import ConfigError, config_error, errors_as, require
from lockstep.base.errors import causes

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)


def disk_errors_as_config_errors(folder: Path | str) -> AbstractContextManager[None]:
    """Turn errors of the disk into a ConfigError, in what writes to a run's folder."""
    path = Path(folder)
    return errors_as(lambda error: write_error(folder, cause) if (cause := find_disk_error(error, path)) else None)


def silence_thread_errors(folder: Path | str) -> None:
    """Keep threads from printing errors of the disk: TensorBoard raises them again where the run writes next."""
    previous_hook = threading.excepthook

    def hook(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is None or find_disk_error(arguments.exc_value, Path(folder)) is None:
            previous_hook(arguments)

    threading.excepthook = hook


def write_error(folder: Path | str, error: OSError, key: str = "hydra.run.dir") -> ConfigError:
    """Return the ConfigError for a folder in which a file, or which itself, cannot be written."""
    reason = f"what the run leaves cannot be written there ({error.strerror})"
    hint = "a folder with room for it that you may write to; checkpoints that were saved are kept"
    return config_error(key, folder, reason, hint)


def find_disk_error(error: BaseException, folder: Path) -> OSError | None:
    """Return the disk's error among the causes of an error, or None: no room, or the folder or a file in it fails."""
    for cause in causes(error):
        if isinstance(cause, OSError):
            file = Path(str(cause.filename))
            is_missing = folder.is_relative_to(file) and not os.path.isdir(folder)  # noqa: PTH112
            is_full = cause.filename is None and cause.errno in (*NO_ROOM, errno.EFBIG)
            fails = file.is_relative_to(folder) and cause.errno != errno.ENOENT  # code of the user's may read there
            if fails or is_missing or is_full:
                return cause
    return None


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Create a run's folder, and keep other commands out, by a lock that is gone with this process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # another one: a file system without locks
            hint = "another folder, or wait for its end"
            is_free = not isinstance(error, BlockingIOError)
            require(is_free, "hydra.run.dir", folder, "another command is running in it", hint)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process that a rank started may still hold the descriptor
        os.close(descriptor)
