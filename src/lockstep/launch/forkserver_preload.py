"""Imported first by the fork server, in which nothing runs but imports and forks.

Its garbage collector is off: its imports are never free. When the command is gone, even by SIGKILL, the server kills
the ranks, removes the command's private folder, and exits without the interpreter's slow clean-up. If the server is
killed, Linux kills the ranks, even one that waits in C++ with Python's lock.
"""

import atexit
import gc
import os
import shutil
import sys

import psutil

from lockstep.launch.forkserver import OF_COMMAND
from lockstep.launch.signals import KILL_TIMEOUT, end_with_parent, kill_trees

SERVER = os.getpid()


def end_server() -> None:
    if os.getpid() == SERVER:  # ranks end as multiprocessing's children do
        kill_trees([process.pid for process in psutil.Process().children()], KILL_TIMEOUT)
        if not hasattr(sys, "last_type"):  # an import failed, and the command goes on
            shutil.rmtree(os.environ[OF_COMMAND], ignore_errors=True)
        os._exit(0)


def end_with_server() -> None:
    """Let this process end with the server, if it is a child of the server."""
    if os.getppid() == SERVER:
        end_with_parent()
        if os.getppid() != SERVER:
            os._exit(1)


gc.disable()
atexit.register(end_server)
os.register_at_fork(after_in_child=end_with_server)
