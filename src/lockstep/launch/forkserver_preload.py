"""Imported first by the fork server, in which nothing runs but imports and forks.

Its garbage collector is off: nothing that it imports is ever free, and looking through a million objects takes 0.2 s.
When the command is gone, even by SIGKILL, the server exits without the interpreter's own clean-up, which takes a while,
and in which C++ libraries report on the terminal what they have not freed. Linux then kills the ranks, even one that
waits in C++ code that holds Python's lock (torch's FileStore does, for as long as its file is missing).
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
