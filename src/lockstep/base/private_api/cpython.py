"""Private names of CPython: the state of multiprocessing's fork server, and the interpreter's exit functions."""

import atexit
import multiprocessing.forkserver
import multiprocessing.process
import os
import shutil
import signal
import threading
from contextlib import suppress
from typing import Any

SERVER: Any = multiprocessing.forkserver._forkserver


def kill_forkserver() -> None:
    """Kill the fork server by SIGKILL, if it is running."""
    if SERVER._forkserver_pid is None:
        return
    os.kill(SERVER._forkserver_pid, signal.SIGKILL)
    with suppress(FileNotFoundError):  # of its socket
        SERVER._stop()
    SERVER._forkserver_address = None


def release_forkserver() -> None:
    """Close the pipe that keeps the fork server alive, in a child of the server: it then ends with the command."""
    if SERVER._forkserver_alive_fd is not None:
        os.close(SERVER._forkserver_alive_fd)
        SERVER._forkserver_alive_fd = None


def remove_temporary_folder() -> None:
    """Remove multiprocessing's temporary folder, if this process has created one."""
    folder = getattr(multiprocessing.current_process(), "_config", {}).get("tempdir")
    if folder is not None and multiprocessing.parent_process() is None:  # a child has its parent's
        shutil.rmtree(folder, ignore_errors=True)


def run_exit_functions() -> None:
    """Wait for non-daemon threads, then call atexit's functions, as the interpreter does at its end."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
