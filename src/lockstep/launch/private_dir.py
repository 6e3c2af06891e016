"""The private folder of this process, mode 0700, for all temporary files of its runs.

Each process that uses it holds a shared lock on it. It is removed at exit; after SIGKILL, the next process that creates
such a folder removes those that are not locked.
"""

import contextlib
import errno
import fcntl
import multiprocessing.util
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lockstep.disk import require_room, temporary_errors_as_config_errors, tmpdir_error

PREFIX, MARK = "lockstep-", "made-by-lockstep"
"""The prefix of the folder's name, and a file in it: a folder without that file is never removed."""
NAMES = re.compile(PREFIX + "[a-z0-9_]{8}")
MAX_PATH = 53
"""Bytes of the parent folder's path: the path of a socket, some folders deeper, is limited to 103 on some systems."""
NOBODY = 65534
"""In a container, the owner of files of users outside it, such as its root folder."""

OWN: dict[int, tuple[Path, int]] = {}
"""This process's folder and the descriptor with its lock; by process number, so that a fork has none."""


def private_folder() -> Path:
    """The folder, which the first call creates.

    Raises:
        ConfigError: no temporary folder can be written to.
    """
    if os.getpid() in OWN and OWN[os.getpid()][0].is_dir():
        return OWN[os.getpid()][0]
    remove_private_folder()
    refused: dict[Path, str] = {}
    for base in temporary_folders():
        try:
            require_safe(base)
            remove_abandoned_dirs(base)
            OWN[os.getpid()] = make_private_dir(base)
        except OSError as error:
            refused[base] = error.strerror or str(error)
            continue
        multiprocessing.util.Finalize(None, remove_private_folder, exitpriority=-200)  # after what uses it
        return OWN[os.getpid()][0]
    requested = requested_folder()
    first = requested if requested in refused else next(iter(refused))
    raise tmpdir_error(f"{first}: {refused[first]}")


@contextmanager
def job_folder() -> Iterator[Path]:
    """A folder for one job, in the private one.

    Raises:
        ConfigError: there is no room for it.
    """
    with temporary_errors_as_config_errors(private_folder()):
        folder = Path(tempfile.mkdtemp(prefix="job-", dir=private_folder()))
    try:
        with temporary_errors_as_config_errors(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def own_caches() -> dict[str, str]:
    """Variables that move torch's caches into the private folder: elsewhere another user could create them first."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(private_folder() / "torchinductor")}


def requested_folder() -> Path:
    return Path(os.environ.get("TMPDIR") or "/tmp").absolute()


def temporary_folders() -> list[Path]:
    """Python's, then the usual ones, to be tried in this order."""
    usual = [str(requested_folder()), os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", "/var/tmp"]
    with contextlib.suppress(FileNotFoundError):
        usual.insert(0, tempfile.gettempdir())
    return [*dict.fromkeys(Path(path).absolute() for path in usual if path)]


def require_safe(folder: Path) -> None:
    """Check that a socket's path fits, and that no other user can replace files in the folder.

    Raises:
        OSError: it does not, or another user can.
    """
    if len(os.fsencode(folder)) > MAX_PATH:
        raise OSError(errno.ENAMETOOLONG, f"its path is longer than {MAX_PATH} bytes, too long for a socket's")
    about = folder.stat()
    if about.st_uid not in (0, os.geteuid(), NOBODY):
        raise PermissionError(errno.EPERM, "it belongs to another user")
    if about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX:
        reason = "others may rename there what is yours: it lacks the sticky bit, which chmod +t gives"
        raise PermissionError(errno.EPERM, reason)


def make_private_dir(base: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds the lock on it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        descriptor = None
        try:
            descriptor = lock_private_dir(folder)
            if descriptor is None:  # another process removed it as abandoned
                continue
            with (folder / MARK).open("wb") as file:
                require_room(file.fileno())
            return folder, descriptor
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            if descriptor is not None:
                os.close(descriptor)
            raise


def lock_private_dir(folder: Path) -> int | None:
    """Hold a shared lock on a folder until this process ends; its descriptor, None if the folder is being removed.

    systemd-tmpfiles respects that lock, too.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if folder.exists():
            return descriptor
    except BlockingIOError:
        pass
    except OSError:  # a file system without locks: no process can get the exclusive one either
        return descriptor
    os.close(descriptor)
    return None


def remove_private_folder() -> None:
    """Remove this process's folder, and abandoned ones beside it."""
    if (own := OWN.pop(os.getpid(), None)) is not None:
        _remove(own[0])
        os.close(own[1])
        remove_abandoned_dirs(own[0].parent)


def remove_abandoned(folder: Path) -> None:
    """Remove the private folder of a process that is gone."""
    if (folder / MARK).is_file():
        _remove(folder)


def _remove(folder: Path) -> None:
    """MARK last: whoever is killed meanwhile leaves a folder that the next process removes."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != MARK:
                path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned_dirs(base: Path) -> None:
    """Remove this user's unlocked private folders. Symbolic links are not followed."""
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        for entry in entries:
            if NAMES.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _remove_if_unlocked(Path(entry.path))


def _remove_if_unlocked(folder: Path) -> None:
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where a process holds it
        remove_abandoned(folder)
        if folder.exists():
            folder.rmdir()  # empty: its process was killed before it wrote MARK
    finally:
        os.close(descriptor)
