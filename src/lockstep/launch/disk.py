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
from lockstep.plan.targets.frames import has_user_frames

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG)


def disk_errors_as_config_errors(folder: Path | str) -> AbstractContextManager[None]:
    """Turn errors of the disk into a ConfigError, in what writes to a run's folder."""

    def convert(error: Exception) -> ConfigError | None:
        of_run = [each for each in causes(error) if isinstance(each, OSError) and is_of_the_run(each, Path(folder))]
        return write_error(folder, of_run[0]) if of_run else None

    return errors_as(convert)


def silence_thread_errors() -> None:
    """Keep threads from printing errors of a full disk: TensorBoard raises them again where the run writes next."""

    def hook(arguments: threading.ExceptHookArgs) -> None:
        if getattr(arguments.exc_value, "errno", None) not in NO_ROOM:
            threading.__excepthook__(arguments)

    threading.excepthook = hook


def write_error(folder: Path | str, error: OSError, key: str = "hydra.run.dir") -> ConfigError:
    """Return the ConfigError for a folder in which a file, or which itself, cannot be written."""
    reason = f"the run's files cannot be written there ({error.strerror})"
    hint = "a folder with room for it that you may write to; checkpoints that were saved are kept"
    return config_error(key, folder, reason, hint)


def is_of_the_run(error: OSError, folder: Path) -> bool:
    """Whether Lockstep has raised an error as it wrote to a folder: the error names a file there, or none at all."""
    name = error.filename
    if name is None:
        is_written = error.errno in NO_ROOM
    else:
        file = Path(os.fsdecode(name) if isinstance(name, bytes) else str(name))  # TensorBoard's are bytes
        is_written = file.is_relative_to(folder) or folder.is_relative_to(file)
        is_written = is_written and (error.errno != errno.ENOENT or not folder.is_dir())
    return is_written and not has_user_frames(error)


@contextmanager
def run_lock(folder: Path, key: str = "hydra.run.dir") -> Iterator[None]:
    """Create the folder of a run or a sweep, and keep other commands out, by a lock that ends with this process."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # another one: a file system without locks
            hint = "another folder, or wait for its end"
            is_free = not isinstance(error, BlockingIOError)
            require(is_free, key, folder, "another command is running in it", hint)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process that a rank started may still hold the descriptor
        os.close(descriptor)
