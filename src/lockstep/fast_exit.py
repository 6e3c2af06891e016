"""End a command without the interpreter's own clean-up, which takes a second to free what torch holds, piece by piece.

Nothing is lost if the ranks were processes of their own: no code of the user's ran in this one.
"""

import inspect
import os
import sys
import traceback
from contextlib import suppress

from lockstep.private_api import cpython

IN_PROCESS = "lockstep.launch.in_process"  # imported if a rank ran in this process
PROGRAMS = ("__main__", "lockstep.__main__", "lockstep.cli", __name__, "runpy")  # of a command that has no caller


def exit_fast(status: object) -> None:
    """Run exit functions, wait for threads, flush what was printed, and exit with the status of a SystemExit.

    Return if that is left to the interpreter: a debugger, a profiler, coverage or a test has called the program.
    """
    frames = (frame for frame, _ in traceback.walk_stack(inspect.currentframe()))
    if IN_PROCESS in sys.modules or any(frame.f_globals.get("__name__") not in PROGRAMS for frame in frames):
        return
    if status is not None and not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    cpython.run_exit_functions()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit((status or 0) & 0xFF)
