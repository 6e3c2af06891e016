"""The command's signal handler while ranks run: a first signal asks them to stop, a second one ends the command."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from lockstep.launch.signals import ENDING, signal_handlers
from lockstep.launch.topology import ACCEPTS_STOP, SHUTDOWN_TIMEOUT, STOP_REQUESTED

COALESCE = 0.3  # s within which signals count as one: timeout(1) signals its child, and the whole group with it


class StopHandler:
    """Requests that the ranks of a job stop, once and if they accept it; otherwise acts as the handlers before it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.requests = folder, list[int]()
        self.before = {number: signal.getsignal(number) for number in ENDING}
        self.requested = float("-inf")
        self.timer: threading.Timer | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.requests and (self.folder / ACCEPTS_STOP).exists():
            self.requests.append(number)
            (self.folder / STOP_REQUESTED).touch()
            self.requested = time.monotonic()
            main_thread = int(threading.main_thread().ident or 0)
            self.timer = threading.Timer(SHUTDOWN_TIMEOUT, signal.pthread_kill, (main_thread, number))
            self.timer.daemon = True
            self.timer.start()
        elif time.monotonic() - self.requested > COALESCE:
            before = self.before[signal.Signals(number)]
            if callable(before):
                before(number, frame)
            else:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)


@contextmanager
def first_signal_requests_stop(folder: Path) -> Iterator[list[int]]:
    """Handle signals while a job's ranks run; yield the list of those that requested a stop."""
    handler = StopHandler(folder)
    try:
        with signal_handlers(handler):
            yield handler.requests
    finally:
        if handler.timer is not None:
            handler.timer.cancel()
            handler.timer.join()
