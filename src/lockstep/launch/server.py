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
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from lockstep.launch.private_dir import own_caches, private_folder
from lockstep.launch.undisturbed import no_main_module

PRELOADED: list[str] = []
"""The engines that the fork server has imported."""


def start_method() -> str:
    return "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


def warm_up(*engines: str) -> None:
    """Start the fork server, which imports the engines while this process goes on.

    Once in the life of a process, and again for an engine that the server has not imported yet.
    """
    new = [engine for engine in engines if engine not in PRELOADED]
    if start_method() != "forkserver" or not new:
        return
    end_server()
    PRELOADED.extend(new)
    multiprocessing.forkserver.set_forkserver_preload([*PRELOADED, "lockstep.launch.frozen"])
    multiprocessing.resource_tracker.ensure_running()  # it would let signals through again in between
    # under pdb the script has no `__spec__` to look at
    with interrupts_held(), in_private_folder(), no_main_module():
        multiprocessing.forkserver.ensure_running()
    cool_down_at_exit()


@contextmanager
def interrupts_held() -> Iterator[None]:
    """A process that is started meanwhile, and all that it forks, never hears of Ctrl-C, not even while it imports.

    A terminal tells every process of the command; only the command itself decides. It hears of it behind this.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
def cool_down_at_exit() -> None:
    """Once in the life of this process, behind what still needs the two servers."""
    multiprocessing.util.Finalize(None, cool_down, exitpriority=-1)


def cool_down() -> None:
    """End multiprocessing's two servers: left alone, they outlive this process by a moment."""
    end_server()
    tracker: Any = multiprocessing.resource_tracker._resource_tracker
    tracker._stop()


def end_server() -> None:
    server: Any = multiprocessing.forkserver._forkserver
    if server._forkserver_pid is not None:
        os.kill(server._forkserver_pid, signal.SIGKILL)
        server._stop()
