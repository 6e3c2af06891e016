"""Modules of the user's own that were edited since this process imported them: a run here imports them anew.

A rank with a process of its own imports all of them for the first time.
"""

import importlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lockstep.targets.frames import INSTALLED, is_theirs

State = tuple[int, int]
"""Of a file the time in nanoseconds, and the size."""

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


def _states() -> dict[str, State]:
    """Of all modules of the user's that have a file, those that are installed left out."""
    found = {}
    for name, module in [*sys.modules.items()]:
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and name != "__main__" and _is_edited_by_hand(file):
            try:
                status = Path(file).stat()
            except OSError:
                continue
            found[name] = status.st_mtime_ns, status.st_size
    return found


def _is_edited_by_hand(file: str) -> bool:
    return is_theirs(file) and not any(folder in file for folder in INSTALLED)


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
