"""Edited modules of the user, in a process that runs several times, such as a notebook's."""

import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from lockstep.targets.frames import INSTALLED, is_user_file

_checked = time.time()
"""When modules were last checked for edits, in seconds; at first, when Lockstep was imported."""


def unload_edited_modules() -> None:
    """Remove from sys.modules the user's modules that were edited since the last call, to be imported again.

    With an edited module all others below the same folder of sys.path go: they may have imported names from it.
    """
    global _checked
    importlib.invalidate_caches()
    since, _checked = _checked, time.time()
    files = dict(_user_files())
    edited = {_root(name, file) for name, file in files.items() if file.stat().st_mtime > since}
    for name, file in files.items():
        if _root(name, file) in edited:
            del sys.modules[name]


def _user_files() -> Iterator[tuple[str, Path]]:
    for name, module in sys.modules.items():
        file = getattr(module, "__file__", None)
        if name == "__main__" or not isinstance(file, str) or any(folder in file for folder in INSTALLED):
            continue
        if file.endswith(".py") and is_user_file(file) and Path(file).is_file():
            yield name, Path(file)


def _root(name: str, file: Path) -> Path:
    """Return the folder of sys.path that a module lies below."""
    return file.parents[name.count(".") + (file.name == "__init__.py")]
