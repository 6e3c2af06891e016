"""Private names of CPython: the state of multiprocessing's fork server and resource tracker, pdb's of Ctrl-C, and what
the interpreter calls before it ends.
"""

import atexit
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

STATE = ("_forkserver_pid", "_forkserver_address", "_forkserver_alive_fd", "_stop")
"""Of the fork server."""


def forkserver_is_known() -> bool:
    """Whether all names of the fork server's state are there. Without one of them, ranks are spawned instead."""
    server = _forkserver()
    return all(hasattr(server, name) for name in STATE)


def forkserver_pid() -> int | None:
    """None where none runs, or nothing is known of it."""
    pid: int | None = _forkserver()._forkserver_pid if forkserver_is_known() else None
    return pid


def forkserver_socket() -> Path | None:
    """Where it takes requests; None where none runs."""
    address = _forkserver()._forkserver_address
    return None if address is None else Path(address)


def kill_forkserver() -> None:
    """By SIGKILL. Does nothing where none runs, or nothing is known of it."""
    if (pid := forkserver_pid()) is None:
        return
    os.kill(pid, signal.SIGKILL)
    with suppress(FileNotFoundError):  # of its socket
        _forkserver()._stop()
    _forkserver()._forkserver_address = None


def forget_forkserver() -> None:
    """To be called when its process has been waited for: `ensure_running` then starts another."""
    server = _forkserver()
    os.close(server._forkserver_alive_fd)
    server._forkserver_pid = server._forkserver_alive_fd = server._forkserver_address = None


def release_tracker() -> int | None:
    """Close the resource tracker's pipe, at which it exits. Its process number.

    None where none runs, or in a version without these names: then it outlives this process by a moment.
    """
    tracker: Any = getattr(multiprocessing.resource_tracker, "_resource_tracker", None)
    pid: int | None = getattr(tracker, "_pid", None)
    if pid is None or not hasattr(tracker, "_fd"):
        return None
    os.close(tracker._fd)
    tracker._fd = tracker._pid = None
    return pid


def sockets_folder() -> Path | None:
    """The folder in which multiprocessing makes its sockets, and keeps on making them when it is gone."""
    folder = _process_settings().get("tempdir")
    return Path(folder) if folder else None


def set_sockets_folder(folder: Path) -> None:
    """In a version without this name, no fork server can be started again once that folder has been removed."""
    _process_settings()["tempdir"] = str(folder)


def forget_interrupt_handler() -> None:
    """Keep pdb from restoring the handler of Ctrl-C that it replaced. Without this name: it restores none."""
    debugger: Any = getattr(sys.modules.get("pdb"), "Pdb", None)
    if hasattr(debugger, "_previous_sigint_handler"):
        debugger._previous_sigint_handler = None


def can_run_exit_functions() -> bool:
    """Without one of these names a command ends as the interpreter does, a second later."""
    return hasattr(atexit, "_run_exitfuncs") and hasattr(threading, "_shutdown")


def run_exit_functions() -> None:
    """Wait for threads that are no daemons, then call what atexit has, as the interpreter does first of all."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def _forkserver() -> Any:
    return getattr(multiprocessing.forkserver, "_forkserver", None)


def _process_settings() -> dict[str, Any]:
    return getattr(multiprocessing.current_process(), "_config", {})
