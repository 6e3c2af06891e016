"""Imported first by the fork server, in which nothing runs but imports and forks.

Its garbage collector is off: nothing that it imports is ever free, and looking through a million objects takes 0.2 s.
When the command is gone, the server exits without the interpreter's own clean-up, which takes a while, and in which C++
libraries report on the terminal what they have not freed. Linux then kills the ranks, even one that waits in C++ code
that holds Python's lock (torch's FileStore does, for as long as its file is missing).
"""

import atexit
import ctypes
import gc
import os
import signal
import sys
import time

SERVER = os.getpid()
GRACE = 0.5
"""Seconds in which ranks may end by themselves, and remove the temporary files of a command that was killed."""
PR_SET_PDEATHSIG = 1
PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def skip_interpreter_exit() -> None:
    if os.getpid() == SERVER:  # ranks end as multiprocessing's children do
        time.sleep(GRACE)
        os._exit(0)


def end_with_server() -> None:
    """Let the kernel kill this process when the server ends, if it is a child of the server."""
    if PRCTL is not None and os.getppid() == SERVER:
        PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != SERVER:
            os._exit(1)


gc.disable()
atexit.register(skip_interpreter_exit)
os.register_at_fork(after_in_child=end_with_server)
