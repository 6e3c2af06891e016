"""The private folder of this process, mode 0700, for all temporary files of its runs.

Its process holds a lock on it, and removes it at exit; after SIGKILL, the next process that creates one does.
"""

import fcntl
import multiprocessing.util
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lockstep.base.config_error import config_error

PREFIX = "lockstep-tmp-"
MAX_PATH = 63  # bytes: a socket's path, one folder deeper, has at most 103 on some systems

NOBODY = 65534  # in a container, the owner of files of users outside it
FOLDERS: dict[int, Path] = {}  # by pid, so that a fork has none


def private_folder() -> Path:
    """Return the folder, which the first call creates (in /tmp, if the path of the usual folder is too long)."""
    folder = FOLDERS.get(os.getpid())
    if folder is not None and folder.is_dir():
        return folder
    try:
        temporary = tempfile.gettempdir()
        base = Path(temporary if len(os.fsencode(temporary)) <= MAX_PATH else "/tmp")
        require_safe(base)
        remove_abandoned_dirs(base)
        folder = FOLDERS[os.getpid()] = make_private_dir(base)
    except OSError as error:
        reason, hint = f"no temporary folder can be created ({error})", "TMPDIR=FOLDER, of your own, with room"
        raise config_error("TMPDIR", os.environ.get("TMPDIR", "/tmp"), reason, hint) from None
    multiprocessing.util.Finalize(None, remove_private_folder, exitpriority=-200)  # after everything that uses it
    return folder


def require_safe(base: Path) -> None:
    """Raise a PermissionError if another user could rename files in a folder, and so replace those of a run."""
    status = base.stat()
    if status.st_uid not in (0, os.geteuid(), NOBODY):
        raise PermissionError(f"{base} belongs to another user")
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        raise PermissionError(f"other users may rename files in {base}: it lacks the sticky bit (chmod +t)")


@contextmanager
def job_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="job-", dir=private_folder(), ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def make_private_dir(base: Path) -> Path:
    """Create a folder, with a shared lock on it until this process ends. systemd-tmpfiles respects that lock, too."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        with suppress(FileNotFoundError, BlockingIOError):  # another process removes it as abandoned
            fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB)
            if folder.exists():
                return folder


def remove_private_folder() -> None:
    """Remove this process's folder, and abandoned ones beside it."""
    if folder := FOLDERS.pop(os.getpid(), None):
        shutil.rmtree(folder, ignore_errors=True)
        remove_abandoned_dirs(folder.parent)


def remove_abandoned_dirs(base: Path) -> None:
    """Remove this user's unlocked private folders. Symbolic links are not followed."""
    for folder in base.glob(PREFIX + "????????"):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if a process holds it
                if os.fstat(descriptor).st_uid == os.geteuid():
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
