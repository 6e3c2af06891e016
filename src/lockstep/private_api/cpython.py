"""Private names of CPython: the state of multiprocessing's fork server, pdb's handler of Ctrl-C, and the interpreter's
exit functions.
"""

import atexit
import multiprocessing.forkserver
import multiprocessing.process
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

STATE = ("_forkserver_pid", "_forkserver_address", "_forkserver_alive_fd", "_stop")
"""Attributes of the fork server."""


def forkserver_is_known() -> bool:
    """Whether the fork server's state has all these attributes. Without one of them, ranks are spawned instead."""
    server = _forkserver()
    return all(hasattr(server, name) for name in STATE)


def forkserver_pid() -> int | None:
    """Return the fork server's pid, or None if it is not running or its state is unknown."""
    pid: int | None = _forkserver()._forkserver_pid if forkserver_is_known() else None
    return pid


def kill_forkserver() -> None:
    """Kill the fork server by SIGKILL, if it is running."""
    if (pid := forkserver_pid()) is None:
        return
    os.kill(pid, signal.SIGKILL)
    with suppress(FileNotFoundError):  # of its socket
        _forkserver()._stop()
    _forkserver()._forkserver_address = None


def forget_forkserver() -> None:
    """Forget a fork server whose process has been waited for: `ensure_running` then starts another."""
    server = _forkserver()
    os.close(server._forkserver_alive_fd)
    server._forkserver_pid = server._forkserver_alive_fd = server._forkserver_address = None


def release_forkserver() -> None:
    """Close the pipe that keeps the fork server alive, in a child of the server: it then ends with the command.

    Without this name it ends with its last child.
    """
    descriptor: int | None = getattr(_forkserver(), "_forkserver_alive_fd", None)
    if descriptor is not None:
        os.close(descriptor)
        _forkserver()._forkserver_alive_fd = None


def set_sockets_folder(folder: Path) -> None:
    """Let multiprocessing create its sockets in a folder; without this name, in a temporary one."""
    getattr(multiprocessing.current_process(), "_config", {})["tempdir"] = str(folder)


def forget_interrupt_handler() -> None:
    """Keep pdb from restoring the handler of Ctrl-C that it replaced. Without this name it restores none."""
    debugger: Any = getattr(sys.modules.get("pdb"), "Pdb", None)
    if hasattr(debugger, "_previous_sigint_handler"):
        debugger._previous_sigint_handler = None


def can_run_exit_functions() -> bool:
    """Whether `run_exit_functions` works. Without these names a command ends a second later."""
    return hasattr(atexit, "_run_exitfuncs") and hasattr(threading, "_shutdown")


def run_exit_functions() -> None:
    """Wait for non-daemon threads, then call atexit's functions, as the interpreter does at its end."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def _forkserver() -> Any:
    return getattr(multiprocessing.forkserver, "_forkserver", None)
