"""Signals that end a command: only the command acts on them, even if they are sent to all of its processes.

`timeout`, a terminal, systemd and SLURM signal every process of a command. So its processes start with these signals
blocked, and ranks install handlers that do nothing: the command requests a stop, or kills ranks by SIGKILL.
"""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

import psutil

from lockstep.base.private_api.cpython import remove_temporary_folder
from lockstep.launch.topology import ACCEPTS_STOP, STOP_REQUESTED, Flags

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
KILL_TIMEOUT = 2.0  # s
SHUTDOWN_TIMEOUT = 8.0  # s between a request to stop and SIGKILL
COALESCE = 0.3  # s within which signals count as one: timeout(1) signals its child, and the whole group with it

PR_SET_PDEATHSIG = 1


def end_command(number: int, _frame: FrameType | None = None) -> NoReturn:
    """End the command and all processes below it at once: an exception could be lost in C code that imports."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    kill_trees([process.pid for process in psutil.Process().children()], KILL_TIMEOUT)
    remove_temporary_folder()
    if not {"TORCHELASTIC_RUN_ID", "SLURM_PROCID"} & os.environ.keys():  # a launcher signals each rank
        with suppress(OSError):
            os.write(2, f"{signal.Signals(number).name}: ended at once, without a new checkpoint\n".encode())
    os._exit(128 + number)


def end_with_parent() -> None:
    """Let Linux kill this process when its parent is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def signal_handlers(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle the signals that are not ignored; then restore the handlers. Only in the main thread, as Python allows."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    handled = {number: previous for number, previous in before.items() if previous is not signal.SIG_IGN}
    for number in handled:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in handled.items():
            signal.signal(number, previous)


@contextmanager
def first_signal_requests_stop(flags: Flags, coalesce: float = COALESCE) -> Iterator[list[int]]:
    """Let the first signal request a stop if the ranks that share the flags accept it; yield the list of it.

    Signals in the next `coalesce` seconds are ignored, and later ones handled as before. SHUTDOWN_TIMEOUT after the
    first, the same signal is sent again.
    """
    requests, main_thread = list[int](), threading.main_thread().ident or 0
    timer = threading.Timer(SHUTDOWN_TIMEOUT, lambda: signal.pthread_kill(main_thread, requests[0]))
    timer.daemon = True
    before, requested = {number: signal.getsignal(number) for number in ENDING}, 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        handler = before[signal.Signals(number)]
        if not requests and flags[ACCEPTS_STOP]:
            requests.append(number)
            flags[STOP_REQUESTED] = 1
            requested = time.monotonic()
            timer.start()
        elif requests and time.monotonic() - requested < coalesce:
            pass
        elif callable(handler):
            handler(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    try:
        with signal_handlers(handle):
            yield requests
    finally:
        timer.cancel()
        if requests:
            timer.join()


@contextmanager
def block_signals() -> Iterator[None]:
    """Block the signals, so that a process that is started meanwhile inherits that mask; then restore the mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """Ignore these signals in this rank, including pending ones; it may still end by SIGTERM what it forks.

    By a handler that does nothing: exec would pass on ignored and blocked signals.
    """
    for number in ENDING:
        signal.signal(number, lambda *_: None)
        signal.siginterrupt(number, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))


def kill_trees(pids: Iterable[int], timeout: float) -> list[int]:
    """Kill processes and their descendants; return the pids of those that are alive after so many seconds."""
    processes = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            processes += [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    deadline = time.monotonic() + timeout
    while (alive := [*filter(is_alive, processes)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return [process.pid for process in alive]


def is_alive(process: psutil.Process) -> bool:
    """Whether a process has not ended; a zombie has."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
