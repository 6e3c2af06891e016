"""The private folder of this process, for what runs need only while they last: 0700, in the system's temporary folder.

Everything that would have a name of its own there lies in it. Who uses it holds a lock on it. It is removed at the end;
where nobody was left to do that, the next process that makes one removes those that nobody holds.
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

from lockstep.config_error import ConfigError, config_error

PREFIX, MARK = "lockstep-", "made-by-lockstep"
"""Begin of the folder's name, and the file in it without which nobody removes it."""
NAMES = re.compile(PREFIX + "[a-z0-9_]{8}")
LONGEST = 53
"""Bytes of the temporary folder's path: a socket's, some folders below it, may have 103 on some systems."""
ROOM = 2**16
"""Bytes that a run may need there: who joined, notes of ranks that failed."""
NO_MORE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
"""What a disk says that takes nothing, or nothing from this user."""
NOBODY = 65534
"""Linux's owner of what belongs to no user of a container: its root folder, say."""

OWN: dict[int, tuple[Path, int]] = {}
"""This process's folder and the descriptor that holds its lock, by process: a fork has none."""


def private_folder() -> Path:
    """Made at the first call.

    Raises:
        ConfigError: no temporary folder can be written to.
    """
    if os.getpid() in OWN and OWN[os.getpid()][0].is_dir():
        return OWN[os.getpid()][0]
    remove_private_folder()
    refused: dict[Path, str] = {}
    for base in temporary_folders():
        try:
            require_fit(base)
            remove_left_behind(base)
            OWN[os.getpid()] = made(base)
        except OSError as error:
            refused[base] = error.strerror or str(error)
            continue
        multiprocessing.util.Finalize(None, remove_private_folder, exitpriority=-200)  # behind what lies in it
        return OWN[os.getpid()][0]
    asked_for = users_folder()
    first = asked_for if asked_for in refused else next(iter(refused))
    raise unusable(f"{first}: {refused[first]}")


@contextmanager
def job_folder() -> Iterator[Path]:
    """A folder for one job, in the private one.

    Raises:
        ConfigError: there is no room for it.
    """
    with writing_temporaries(private_folder()):
        folder = Path(tempfile.mkdtemp(prefix="job-", dir=private_folder()))
    try:
        with writing_temporaries(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def own_caches() -> dict[str, str]:
    """Variables that lead into the private folder what torch would give a name that others could take before it."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(private_folder() / "torchinductor")}


def unusable(why: str) -> ConfigError:
    return config_error(
        "TMPDIR",
        os.environ.get("TMPDIR", "/tmp"),
        f"no temporary folder can be used ({why})",
        "TMPDIR=FOLDER, of your own, with room",
    )


def users_folder() -> Path:
    return Path(os.environ.get("TMPDIR") or "/tmp").absolute()


def temporary_folders() -> list[Path]:
    """The system's, and where that cannot be used, the usual ones."""
    usual = [str(users_folder()), os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", "/var/tmp"]
    with contextlib.suppress(FileNotFoundError):
        usual.insert(0, tempfile.gettempdir())
    return [*dict.fromkeys(Path(path).absolute() for path in usual if path)]


def require_fit(folder: Path) -> None:
    """Raises OSError where a socket's path would be too long, or another user could put something in place of ours.

    Not even for want of another folder: who else may write to one (what containers share, say) cannot be known.
    """
    if len(os.fsencode(folder)) > LONGEST:
        raise OSError(errno.ENAMETOOLONG, f"its path is longer than {LONGEST} bytes, too long for a socket's")
    about = folder.stat()
    if about.st_uid not in (0, os.geteuid(), NOBODY):
        raise PermissionError(errno.EPERM, "it belongs to another user")
    if about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX:
        why = "others may rename there what is yours: it lacks the sticky bit, which chmod +t gives"
        raise PermissionError(errno.EPERM, why)


def made(base: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        descriptor = None
        try:
            descriptor = hold_private_dir(folder)
            if descriptor is None:  # someone took it for one left behind
                continue
            with (folder / MARK).open("wb") as file:
                require_room(file.fileno())
            return folder, descriptor
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            if descriptor is not None:
                os.close(descriptor)
            raise


def require_room(descriptor: int) -> None:
    """Raises OSError."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, ROOM)
            os.ftruncate(descriptor, 0)
    except OSError as error:
        if error.errno in NO_MORE:
            raise


def hold_private_dir(folder: Path) -> int | None:
    """The descriptor by which this process shares the lock on a folder until it ends; None if that is being removed.

    systemd's cleaner of /tmp, too, leaves a folder alone that is locked so.
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
    except OSError:  # a file system without locks: nobody can hold it, so nobody removes it either
        return descriptor
    os.close(descriptor)
    return None


def remove_private_folder() -> None:
    """And those that peers have left which were killed."""
    if (own := OWN.pop(os.getpid(), None)) is not None:
        shutil.rmtree(own[0], ignore_errors=True)
        os.close(own[1])
        remove_left_behind(own[0].parent)


def remove_abandoned(folder: Path) -> None:
    """The private folder of a process that is gone, by one that it started."""
    if (folder / MARK).is_file():
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_behind(base: Path) -> None:
    """Remove folders of this user's earlier processes that nobody holds; no link is followed."""
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        for entry in entries:
            if NAMES.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _remove_if_left(Path(entry.path))


def _remove_if_left(folder: Path) -> None:
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where somebody holds it
        remove_abandoned(folder)
        if folder.exists():
            folder.rmdir()  # if it is empty: its maker was killed at once
    finally:
        os.close(descriptor)


@contextmanager
def writing_temporaries(folder: Path) -> Iterator[None]:
    """Turn what a temporary folder does to its writer that has become full, or read-only, into its refusal.

    Raises:
        ConfigError: naming TMPDIR.
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        why = no_room(folder) if of_a_disk(error) else None
        if why is None:
            raise
        raise unusable(f"{folder}: {why}") from None


def of_a_disk(error: BaseException | None) -> bool:
    """Whether a disk that takes no more is among an error and those that led to it, also in C++'s words."""
    while error is not None:
        words = any(os.strerror(number).lower() in str(error).lower() for number in NO_MORE)
        if words or (isinstance(error, OSError) and error.errno in NO_MORE):
            return True
        error = error.__cause__ or error.__context__
    return False


def no_room(folder: Path) -> str | None:
    """Why nothing can be written in a folder; None if something can, or the folder is gone."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            require_room(file.fileno())
    except OSError as error:
        return error.strerror if error.errno in NO_MORE else None
    return None
