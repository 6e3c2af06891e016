"""The fork server: a process that has imported the engine once and forks every rank of every job from itself.

A plain fork is unsafe once torch has computed, and spawn would import everything again in every rank: `import
lightning` alone takes seconds. Where Python has no fork server, ranks are spawned.
"""

import multiprocessing.forkserver
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FrameType

from lockstep.launch.failure import exit_reason
from lockstep.launch.preserved_process import hide_main_module
from lockstep.launch.private_dir import own_caches, private_folder
from lockstep.launch.signals import ENDING, block_signals, exit_by_signal
from lockstep.private_api import cpython

PRELOADED: list[str] = []
"""What the fork server has imported by name: engines, and what else a run needs."""
FIRST = "lockstep.launch.forkserver_preload"
LAST = ("lockstep.launch.worker", "torch._dynamo")
"""The ranks' entry point, and what torch imports at the first step of an optimizer: else a second in each rank.
multiprocessing passes over a module that is not there."""
EXIT_TIMEOUT = 1.0


def start_method() -> str:
    available = "forkserver" in multiprocessing.get_all_start_methods() and cpython.forkserver_is_known()
    return "forkserver" if available else "spawn"


def start_forkserver(*modules: str) -> None:
    """Start the fork server, which imports these modules (engines) while this process goes on.

    Once in the life of a process, and again for a module that the server has not imported yet.
    """
    new = [module for module in modules if module not in PRELOADED]
    if start_method() != "forkserver" or not new:
        return
    cpython.kill_forkserver()
    PRELOADED.extend(new)
    multiprocessing.forkserver.set_forkserver_preload([FIRST, *PRELOADED, *LAST])
    ensure_forkserver()
    end_servers_at_exit()


def ensure_forkserver() -> None:
    """Start the fork server again if it has ended, or its socket is gone; ranks are forked from it alone."""
    if start_method() != "forkserver":
        return
    socket = cpython.forkserver_socket()
    if socket is not None and not socket.exists():  # the temporary folder was cleared
        cpython.kill_forkserver()
    place_sockets()
    with block_signals():
        multiprocessing.resource_tracker.ensure_running()  # starts a process, too, and unblocks signals
    with block_signals(), private_caches(), hide_main_module():  # under pdb the script has no `__spec__` to look at
        multiprocessing.forkserver.ensure_running()


def how_server_ended() -> str | None:
    """Return how the fork server has ended, or None if it does not within EXIT_TIMEOUT."""
    deadline = time.monotonic() + EXIT_TIMEOUT
    while (server := cpython.forkserver_pid()) is not None and time.monotonic() < deadline:
        pid, status = os.waitpid(server, os.WNOHANG)
        if pid:
            cpython.forget_forkserver()  # `ensure_forkserver` starts another
            reason = exit_reason(os.waitstatus_to_exitcode(status))
            return f"the fork server, from which all ranks start, is lost: {reason}"
        time.sleep(0.01)
    return None


def place_sockets() -> None:
    """Let multiprocessing make its sockets in the private folder, which is removed with its contents.

    Once that folder is gone, in a new one.
    """
    folder = cpython.sockets_folder()
    if folder is None or not folder.is_dir():
        cpython.set_sockets_folder(Path(tempfile.mkdtemp(prefix="pymp-", dir=private_folder())))


@contextmanager
def private_caches() -> Iterator[None]:
    """Put what torch caches as the server imports it into the private folder."""
    added = own_caches().keys() - os.environ.keys()
    os.environ.update({**own_caches(), **os.environ})
    try:
        yield
    finally:
        for key in added:
            del os.environ[key]


@cache
def end_servers_at_exit() -> None:
    """Register `end_servers` once, after everything that needs the two servers."""
    multiprocessing.util.Finalize(None, end_servers, exitpriority=-1)


def end_servers() -> None:
    """End multiprocessing's two servers, fork server and resource tracker: else they outlive this process briefly."""
    cpython.kill_forkserver()
    end_tracker()


def end_servers_on_signals() -> None:
    """End the servers on a signal, until the command has other handlers: by default they would end later."""
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end_with_servers)


def _end_with_servers(number: int, _frame: FrameType | None) -> None:
    """May interrupt `end_servers`, so it takes no lock."""
    server = cpython.forkserver_pid()
    with suppress(OSError):
        if server is not None:
            os.kill(server, signal.SIGKILL)
        end_tracker()
    exit_by_signal(number)


def end_tracker() -> None:
    """End the resource tracker: it exits when no process holds its pipe, or is killed after EXIT_TIMEOUT."""
    pid = cpython.release_tracker()
    deadline = time.monotonic() + EXIT_TIMEOUT
    while pid is not None and os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
