"""The fork server: a process that has imported the engine once and forks every rank of every job from itself.

A plain fork is unsafe once torch has computed, and spawn would import everything again in every rank: `import
lightning` alone takes seconds.
"""

import multiprocessing.forkserver
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, ModuleType

from lockstep.launch.failure import exit_reason
from lockstep.launch.private_dir import cache_variables, private_folder
from lockstep.launch.signals import ENDING, block_signals, exit_by_signal
from lockstep.private_api import cpython

PRELOADED: list[str] = []
"""Modules that the fork server has imported by name: engines, and what else a run needs."""
FIRST = "lockstep.launch.forkserver_preload"
LAST = ("lockstep.launch.worker", "torch._dynamo")
"""The ranks' entry point, and what torch imports at the first step of an optimizer: else a second in each rank.
multiprocessing passes over a module that is not there."""
EXIT_TIMEOUT = 1.0


def start_forkserver(*modules: str) -> None:
    """Start the fork server, which imports these modules (engines) while this process goes on.

    Once in the life of a process, and again for a module that the server has not imported yet.
    """
    new = [module for module in modules if module not in PRELOADED]
    if not new:
        return
    cpython.kill_forkserver()
    PRELOADED.extend(new)
    multiprocessing.forkserver.set_forkserver_preload([FIRST, *PRELOADED, *LAST])
    ensure_forkserver()
    multiprocessing.util.Finalize(None, cpython.kill_forkserver, exitpriority=-1)  # after everything that needs it


def ensure_forkserver() -> None:
    """Start the fork server again if it has ended; ranks are forked from it alone."""
    cpython.set_sockets_folder(private_folder())
    with block_signals():
        multiprocessing.resource_tracker.ensure_running()  # starts a process, too, and unblocks signals
    with block_signals(), environment_defaults(cache_variables()), hide_main_module():
        multiprocessing.forkserver.ensure_running()


def server_failure() -> str | None:
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


@contextmanager
def environment_defaults(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables that are not set, for the time of a context."""
    added = variables.keys() - os.environ.keys()
    os.environ.update({**variables, **os.environ})
    try:
        yield
    finally:
        for key in added:
            del os.environ[key]


@contextmanager
def hide_main_module() -> Iterator[None]:
    """Keep new processes from importing the running script: it may call `run` without a `__main__` guard."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def end_server_on_signals() -> None:
    """End the fork server on a signal, until the command has other handlers: by default it would end later."""
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end_with_server)


def _end_with_server(number: int, _frame: FrameType | None) -> None:
    """May interrupt `kill_forkserver`, so it takes no lock."""
    with suppress(ProcessLookupError):
        if (server := cpython.forkserver_pid()) is not None:
            os.kill(server, signal.SIGKILL)
    exit_by_signal(number)
