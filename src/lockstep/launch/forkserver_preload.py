"""Imported first by the fork server, in which nothing runs but imports and forks.

Its garbage collector is off: its imports are never free. When the command is gone, even by SIGKILL, the server
exits without the interpreter's slow clean-up, and Linux kills the ranks, even one that waits in C++ with Python's lock.
"""

import atexit
import gc
import os

from lockstep.launch.signals import end_with_parent

SERVER = os.getpid()


def skip_interpreter_exit() -> None:
    if os.getpid() == SERVER:  # ranks end as multiprocessing's children do
        os._exit(0)


def end_with_server() -> None:
    """Let this process end with the server, if it is a child of the server."""
    if os.getppid() == SERVER:
        end_with_parent()
        if os.getppid() != SERVER:
            os._exit(1)


gc.disable()
atexit.register(skip_interpreter_exit)
os.register_at_fork(after_in_child=end_with_server)
