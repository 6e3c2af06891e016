"""The private folder of this process, mode 0700, for all temporary files of its runs.

Its process holds a lock on it, and removes it at exit; after SIGKILL, the next process that creates one does.
"""

import errno
import fcntl
import multiprocessing.util
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lockstep.config_error import config_error
from lockstep.disk import NO_ROOM

PREFIX = "lockstep-tmp-"
MAX_PATH = 63  # bytes: a socket's path, one folder deeper, has at most 103 on some systems
ROOM = 2**16  # bytes that a run may need
NOBODY = 65534  # in a container, the owner of files of users outside it

FOLDERS: dict[int, Path] = {}  # by pid, so that a fork has none


def private_folder() -> Path:
    """Return the folder, which the first call creates."""
    pid = os.getpid()
    if pid in FOLDERS and FOLDERS[pid].is_dir():
        return FOLDERS[pid]
    reasons = []
    names = os.environ.get("TMPDIR") or "/tmp", "/tmp", "/var/tmp"
    for base in dict.fromkeys(Path(name).absolute() for name in names):
        try:
            require_safe(base)
            remove_abandoned_dirs(base)
            FOLDERS[pid] = make_private_dir(base)
        except OSError as error:
            reasons.append(f"{base}: {error.strerror}")
            continue
        multiprocessing.util.Finalize(None, remove_private_folder, exitpriority=-200)  # after everything that uses it
        return FOLDERS[pid]
    reason, hint = f"no temporary folder can be used ({reasons[0]})", "TMPDIR=FOLDER, of your own, with room"
    raise config_error("TMPDIR", os.environ.get("TMPDIR", "/tmp"), reason, hint)


@contextmanager
def job_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="job-", dir=private_folder(), ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def cache_variables() -> dict[str, str]:
    """Return variables that move torch's caches into the private folder: another user could create the usual one."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(private_folder() / "torchinductor")}


def require_safe(folder: Path) -> None:
    """Raise an OSError if a socket's path does not fit, or another user can replace files in the folder."""
    if len(os.fsencode(folder)) > MAX_PATH:
        raise OSError(errno.ENAMETOOLONG, f"its path is longer than {MAX_PATH} bytes, too long for a socket's")
    status = folder.stat()
    if status.st_uid not in (0, os.geteuid(), NOBODY):
        raise PermissionError(errno.EPERM, "it belongs to another user")
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        reason = "other users may rename your files there: it lacks the sticky bit (chmod +t)"
        raise PermissionError(errno.EPERM, reason)


def make_private_dir(base: Path) -> Path:
    """Create a folder, with a shared lock on it until this process ends. systemd-tmpfiles respects that lock, too."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        with suppress(FileNotFoundError, BlockingIOError):  # another process removes it as abandoned
            fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB)
            if folder.exists():
                break
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(ROOM))
    except OSError as error:
        if error.errno in NO_ROOM:  # a limit on the size of one file says nothing of the disk
            shutil.rmtree(folder, ignore_errors=True)
            raise
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
            _remove_if_unlocked(folder)


def _remove_if_unlocked(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if a process holds it
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
