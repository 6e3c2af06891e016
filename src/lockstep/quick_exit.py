"""The end of a command without the interpreter's own, which takes a second to free, piece by piece, what torch holds.

Nothing is lost by it where the ranks were processes of their own: no code of the user's ran in this one, so it has no
file open that only the interpreter would close.
"""

import inspect
import os
import sys
from contextlib import suppress

from lockstep.private_api import cpython

RUN_HERE = "lockstep.launch.in_process"
"""Imported where a rank ran in this process."""
PROGRAMS = ("__main__", "lockstep.__main__", "lockstep.cli", __name__, "runpy")
"""The modules of all frames of a command that nobody else has called; runpy is what `python -m` calls."""


def exit_quickly(status: object) -> None:
    """End the process with the status of a SystemExit; return where that is left to the interpreter.

    Exit functions are called, threads waited for, and what has been printed is written before.
    """
    if RUN_HERE in sys.modules or not _is_program() or not cpython.can_run_exit_functions():
        return
    if status is not None and not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    cpython.run_exit_functions()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit((status or 0) & 0xFF)


def _is_program() -> bool:
    """Whether nobody has called the program who has yet to do something: a debugger, a profiler, coverage, a test."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") in PROGRAMS:
        frame = frame.f_back
    return frame is None
