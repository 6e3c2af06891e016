"""The command's signal handler: end by SystemExit, or first request that the ranks stop."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from lockstep.launch.signals import signal_handlers
from lockstep.launch.topology import ACCEPTS_STOP, SHUTDOWN_TIMEOUT, STOP_REQUESTED

COALESCE = 0.3
"""Seconds within which signals count as one: timeout(1) signals its child, and then the whole group with it."""
RAISE_INTERVAL = 0.25
"""Seconds after which SystemExit is raised again if it is lost."""


class StopHandler:
    """Ends the command by SystemExit; with a job's `folder`, the first signal only requests that its ranks stop.

    requests: the signals that requested a stop.

    Signals less than COALESCE apart count as one. While the command ends each extends that time, so that a key that is
    held down interrupts no clean-up; after a request it does not, so that such a key counts as a second signal.

    SystemExit may be lost where it is raised: torch's C code drops it while it imports numpy; clean-up of a library
    that is interrupted within may fail, and `except Exception` then catches that error. So it is raised again.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder, self.requests = folder, list[int]()
        self.last = float("-inf")
        self.raised: SystemExit | None = None
        self.timer: threading.Timer | None = None
        self.sent_by_timer = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        by_timer, self.sent_by_timer = self.sent_by_timer, False
        if by_timer and self.raised is not None:
            self._send_after(RAISE_INTERVAL, number)
            self.raise_if_lost()
            return
        now = time.monotonic()
        repeated = now - self.last < COALESCE and not by_timer
        if self.raised is not None or not repeated:
            self.last = now
        if repeated:
            return
        accepts = self.folder and (self.folder / ACCEPTS_STOP).exists()
        if self.folder and accepts and self.raised is None and not self.requests:
            self.requests.append(number)
            (self.folder / STOP_REQUESTED).touch()
            self._send_after(SHUTDOWN_TIMEOUT, number)
            return
        self._send_after(RAISE_INTERVAL, number)
        self.raised = SystemExit(128 + number)
        raise self.raised

    def raise_if_lost(self) -> None:
        """Raise SystemExit again, unless it, or an error that followed from it, is being handled."""
        error = sys.exception()
        while error is not None and error is not self.raised:
            error = error.__context__
        if error is None and self.raised is not None:
            raise self.raised

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer.join()

    def _send_after(self, seconds: float, number: int) -> None:
        """Send the main thread a signal in so many seconds; SIGALRM and its timer are left to the user."""

        def send() -> None:
            self.sent_by_timer = True
            signal.pthread_kill(int(threading.main_thread().ident or 0), number)

        if self.timer is not None:
            self.timer.cancel()
        self.timer = threading.Timer(seconds, send)
        self.timer.daemon = True
        self.timer.start()


@contextmanager
def signals_end_command(folder: Path | None = None) -> Iterator[StopHandler]:
    """Turn signals into SystemExit, so that `finally` clauses run. Ignored signals stay ignored (nohup).

    While the ranks of the job in `folder` train, the first signal requests that they stop. A second signal ends the
    command; after SHUTDOWN_TIMEOUT the first is sent again.

    Not for ranks of an external launcher: they may wait for one another in C++, where Python runs no handler.
    """
    handler = StopHandler(folder)
    try:
        with signal_handlers(handler):
            try:
                yield handler
            finally:
                handler.stop_timer()
    finally:
        if folder is None and handler.raised is not None:
            raise handler.raised from None  # no rank had been started: another error only follows from it
        handler.raise_if_lost()
