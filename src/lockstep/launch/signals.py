"""Signals that end a command: only the command acts on them, even if they are sent to all of its processes.

`timeout`, a terminal, systemd and SLURM signal every process of a command. So its processes start with these signals
blocked, and ranks install handlers that do nothing: the command requests a stop, or kills ranks by SIGKILL. What a rank
starts by exec has the default handlers and an empty mask.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from lockstep.launch.private_dir import remove_private_folder
from lockstep.launch.topology import STOP_REQUESTED

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

REQUEST_TIMEOUT = 1.0
"""Seconds within which the command requests a stop, if a signal was sent to all processes."""

Handler = Callable[[int, FrameType | None], None]


def exit_by_signal(number: int, _frame: FrameType | None = None) -> None:
    """Remove this process's private folder, then take the signal's default action."""
    remove_private_folder()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@contextmanager
def signal_handlers(handler: Handler) -> Iterator[None]:
    """Handle the signals that are not ignored; then restore the handlers. Only in the main thread, as Python allows."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    handled = [number for number in ENDING if before[number] is not signal.SIG_IGN]
    for number in handled:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


@contextmanager
def block_signals() -> Iterator[None]:
    """Block the signals, so that a process that is started meanwhile inherits that mask; then restore the mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals(folder: Path) -> None:
    """Ignore these signals in this rank, including pending ones.

    By a handler that does nothing: exec would pass on ignored and blocked signals. Processes that this rank forks, such
    as DataLoader workers, ignore them, too, but the rank may terminate them: SIGTERM is blocked across the fork, until
    the child has a handler that tells the rank's SIGTERM from the command's, which requests a stop in `folder`.
    """
    for number in ENDING:
        signal.signal(number, lambda *_: None)
        signal.siginterrupt(number, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    masks: list[set[int]] = []

    def block() -> None:
        masks[:] = [{*signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])}]

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks[0])

    def exit_unless_stop_requested(number: int, _frame: FrameType | None) -> None:
        deadline = time.monotonic() + REQUEST_TIMEOUT
        while time.monotonic() < deadline:
            if (folder / STOP_REQUESTED).exists():
                return
            time.sleep(0.01)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def handle_in_child() -> None:
        signal.signal(signal.SIGTERM, exit_unless_stop_requested)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=handle_in_child)
