"""The fork server: a process that has imported the engine once and forks every rank of every job from itself.

A plain fork is unsafe once torch has computed, and spawn would import everything again for every rank: `import
lightning` alone takes seconds. Where there is no fork server, ranks are spawned.
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

from lockstep.launch.preserved_process import hide_main_module
from lockstep.launch.private_dir import own_caches, private_folder
from lockstep.launch.signals import ENDING, block_signals, end_tidily
from lockstep.private_api import cpython

PRELOADED: list[str] = []
"""What the fork server has imported by name: engines, and what else a run needs."""
FIRST = "lockstep.launch.forkserver_preload"
LAST = ("lockstep.launch.worker", "torch._dynamo")
"""The ranks' entry point, and what torch imports at the first step of an optimizer: else a second in each rank.
multiprocessing passes over a module that is not there."""
EXIT_TIMEOUT = 1.0
"""Seconds for the resource tracker to end."""


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
    if socket is not None and not socket.exists():  # somebody cleared the temporary folder
        cpython.kill_forkserver()
    place_sockets()
    with block_signals():
        multiprocessing.resource_tracker.ensure_running()  # starts a process, too, and unblocks signals
    with block_signals(), in_private_folder(), hide_main_module():  # under pdb the script has no `__spec__` to look at
        multiprocessing.forkserver.ensure_running()


def place_sockets() -> None:
    """Have multiprocessing make its sockets in the private folder, and again in a new one if that was removed.

    The private folder is removed with all its contents, so multiprocessing need not remove its own.
    """
    folder = cpython.sockets_folder()
    if folder is None or not folder.is_dir():
        cpython.set_sockets_folder(Path(tempfile.mkdtemp(prefix="pymp-", dir=private_folder())))


@contextmanager
def in_private_folder() -> Iterator[None]:
    """The server's socket, and what torch caches as it is imported, lie there."""
    temporary, own = tempfile.tempdir, {key: os.environ.get(key) for key in own_caches()}
    tempfile.tempdir = str(private_folder())
    os.environ.update({**own_caches(), **{key: value for key, value in own.items() if value is not None}})
    try:
        yield
    finally:
        tempfile.tempdir = temporary
        for key, value in own.items():
            if value is None:
                del os.environ[key]


@cache
def end_servers_at_exit() -> None:
    """Once in the life of this process, after everything that needs the two servers has ended."""
    multiprocessing.util.Finalize(None, end_servers, exitpriority=-1)


def end_servers() -> None:
    """End multiprocessing's two servers: left alone, they outlive this process by a moment."""
    cpython.kill_forkserver()
    end_tracker()


def end_servers_on_signals() -> None:
    """Until the command handles signals otherwise: by default they would end it alone, and the servers later."""
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end_with_servers)


def _end_with_servers(number: int, _frame: FrameType | None) -> None:
    """It may interrupt `end_servers`, so it takes no lock, and does what is left to do."""
    server = cpython.forkserver_pid() if cpython.forkserver_is_known() else None
    with suppress(OSError):
        if server is not None:
            os.kill(server, signal.SIGKILL)
        end_tracker()
    end_tidily(number)


def end_tracker() -> None:
    """It ends when no process is left that could use it; what a rank has left behind is not waited for."""
    pid = cpython.release_tracker()
    deadline = time.monotonic() + EXIT_TIMEOUT
    while pid is not None and os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
