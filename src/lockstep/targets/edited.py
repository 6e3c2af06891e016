"""Modules of the user's own that were edited since this process imported them: a run here imports them anew.

A rank with a process of its own imports all of them for the first time.
"""

import importlib.util
import os
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lockstep.targets.frames import INSTALLED, is_theirs

State = tuple[int, int]
"""Of a file the time in nanoseconds, and the size."""
YOUNG = 60 * 10**9
"""Nanoseconds, well above the second within which Python takes two edits for one."""

SEEN: dict[str, State] = {}
"""By module, its file as it was when a run had imported it."""


@contextmanager
def edited_modules_anew() -> Iterator[None]:
    """Around the first import of a run in this process.

    An edited module goes, and with it all in the same folder of sys.path: they may have imported names from it.
    """
    importlib.invalidate_caches()
    began, states = _process_began(), _states()
    edited = {
        _root(name) for name, state in states.items() if (state != SEEN[name] if name in SEEN else state[0] > began)
    }
    for name in states:
        if _root(name) in edited:
            del sys.modules[name]
            SEEN.pop(name, None)
    try:
        yield
    finally:
        SEEN.update({name: state for name, state in _states().items() if name not in SEEN})


def forget_young_caches(names: Collection[str]) -> None:
    """Remove the bytecode of modules that were edited just now.

    Python takes it for current while the source's size and the second of its time are the same: an edit within that
    second would not count.
    """
    for name, (written, _) in _states(names).items():
        if time.time_ns() - written < YOUNG:
            with suppress(OSError, NotImplementedError):
                Path(importlib.util.cache_from_source(str(sys.modules[name].__file__))).unlink(missing_ok=True)


def _states(names: Collection[str] | None = None) -> dict[str, State]:
    """Of these modules, or of all, those of the user's that have a file; what is installed is left out."""
    states = {}
    for name in [*sys.modules] if names is None else names:
        file = getattr(sys.modules.get(name), "__file__", None)
        installed = not isinstance(file, str) or any(folder in file for folder in INSTALLED) or not is_theirs(file)
        if not installed and str(file).endswith(".py") and name != "__main__":
            with suppress(OSError):
                status = Path(str(file)).stat()
                states[name] = status.st_mtime_ns, status.st_size
    return states


def _root(name: str) -> Path:
    """The folder of sys.path below which a module lies."""
    file = Path(str(sys.modules[name].__file__))
    return file.parents[name.count(".") + (file.name == "__init__.py")]


def _process_began() -> int:
    """In nanoseconds; before that nothing was imported. Where the system does not tell, now."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        seconds = float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except OSError:
        seconds = 0.0
    return time.time_ns() - int(seconds * 1e9)
