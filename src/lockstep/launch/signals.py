"""Signals that end a command: it alone decides what they come to, whoever else they were sent to.

`timeout`, a terminal, systemd and SLURM tell every process of a command. So the processes that it starts hold these
signals back while they start, and ranks take no notice of them: the command asks them to stop, or ends them by SIGKILL.
What a rank starts by exec has the usual dispositions and an empty mask.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from lockstep.launch.private_dir import remove_private_folder
from lockstep.launch.topology import ACCEPTS_STOP, SHUTDOWN_TIMEOUT, STOP_REQUESTED

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

TOGETHER = 0.3
"""Seconds within which signals count as one: timeout(1) tells its child, and then the whole group with it."""
TOLD_TOO = 1.0
"""Seconds within which the command asks its ranks to stop, if a signal went to all processes."""

Handler = Callable[[int, FrameType | None], None]


@contextmanager
def ends_command() -> Iterator[None]:
    """Turn signals into SystemExit, so that what the command has begun is taken back. Ignored ones stay so (nohup).

    Not for ranks that were started from outside: they may wait in C++ for one another, where Python runs no handler.
    """
    last = float("-inf")

    def end(number: int, _frame: FrameType | None) -> None:
        nonlocal last
        again, last = time.monotonic() - last < TOGETHER, time.monotonic()
        if not again:
            raise SystemExit(128 + number)

    with _handled(end):
        yield


@contextmanager
def asks_ranks(folder: Path) -> Iterator[list[int]]:
    """The same, but while the ranks of the job in `folder` train, the first signal only asks them to stop.

    A second signal ends them (a key that is held down comes to one), or the end of their time, when the first is sent
    again. Gives the signals by which they have been asked.
    """
    asked: list[int] = []
    last, ends = float("-inf"), False

    def ask_or_end(number: int, _frame: FrameType | None) -> None:
        nonlocal last, ends
        now = time.monotonic()
        again = now - last < TOGETHER
        if ends or not again:
            last = now
        if again:
            return
        ends = bool(asked) or not (folder / ACCEPTS_STOP).exists()
        if ends:
            raise SystemExit(128 + number)
        asked.append(number)
        (folder / STOP_REQUESTED).touch()
        behind.enter_context(_sent_again(number))

    with _handled(ask_or_end), ExitStack() as behind:
        yield asked


@contextmanager
def _sent_again(number: int) -> Iterator[None]:
    """To the main thread when the ranks' time is over. SIGALRM and its timer are left to the user."""
    timer = threading.Timer(SHUTDOWN_TIMEOUT, signal.pthread_kill, (threading.main_thread().ident, number))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@contextmanager
def ends_rank() -> Iterator[None]:
    """A signal ends a rank that was started from outside as it ever would, but leaves no private folder behind."""
    with _handled(end_tidily):
        yield


def end_tidily(number: int, _frame: FrameType | None = None) -> None:
    """The default action of a signal, once this process's private folder is gone."""
    remove_private_folder()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@contextmanager
def _handled(handler: Handler) -> Iterator[None]:
    """In the main thread, where alone Python lets handlers be set; as it was behind this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: handler for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN}
    before = {number: signal.getsignal(number) for number in handlers}
    for number, new in handlers.items():
        signal.signal(number, new)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def block_signals() -> Iterator[None]:
    """A process that is started meanwhile holds the signals back, and so does what it forks; this one gets its own."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unheeded(folder: Path) -> None:
    """Let this rank take no notice of the signals, those included that were held back until now.

    A handler that does nothing, since exec would hand on a signal that is ignored, or held back.
    """
    for number in ENDING:
        signal.signal(number, lambda *_: None)
        signal.siginterrupt(number, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    _ended_by_their_rank(folder)


def _ended_by_their_rank(folder: Path) -> None:
    """Processes that this rank forks (the workers of a DataLoader) take no notice either, but the rank may end them.

    SIGTERM is held back until they can tell the one from the other.
    """
    before: list[set[int]] = []

    def hold() -> None:
        before[:] = [{*signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])}]

    def go_on() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before[0])

    def tell_apart() -> None:
        signal.signal(signal.SIGTERM, partial(_end_unless_all_were_told, folder))
        go_on()

    os.register_at_fork(before=hold, after_in_parent=go_on, after_in_child=tell_apart)


def _end_unless_all_were_told(folder: Path, number: int, _frame: FrameType | None) -> None:
    deadline = time.monotonic() + TOLD_TOO
    while time.monotonic() < deadline:
        if (folder / STOP_REQUESTED).exists():
            return
        time.sleep(0.01)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
