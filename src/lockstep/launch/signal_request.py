"""Graceful shutdown of the ranks of an external launcher: a signal requests that they stop."""

import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator

from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.launch.graceful_shutdown import Request
from lockstep.launch.private_dir import remove_private_folder
from lockstep.launch.signals import signal_handlers
from lockstep.launch.topology import SHUTDOWN_TIMEOUT


class SignalRequest(Request):
    """A request by a signal, as torchrun and SLURM send and pass on. After SHUTDOWN_TIMEOUT this process exits.

    `number` is the signal; SIGTERM where a peer received it. `accepted`: whether this rank received one.
    """

    def __init__(self, rank: int, world_size: int, store: Store | None) -> None:
        super().__init__(self._signalled, rank, world_size, store)
        self.accepted, self.number = False, signal.SIGTERM
        self.timer = threading.Timer(SHUTDOWN_TIMEOUT, self._exit)
        self.timer.daemon = True

    @contextlib.contextmanager
    def listening(self, batches: int) -> Iterator[None]:
        """By a wake-up socket: Python runs handlers in the main thread, which may be waiting for a peer in C++."""
        self.received, sender = socket.socketpair()
        sender.setblocking(False)
        descriptor = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        try:
            with signal_handlers(lambda *_: None), super().listening(batches):
                yield
        finally:
            self.timer.cancel()
            self.accepted = self._signalled()  # one that came while a peer was lost counts, too
            signal.set_wakeup_fd(descriptor)
            sender.close()
            self.received.close()

    def _signalled(self) -> bool:
        if not select.select([self.received], [], [], 0)[0]:
            return False
        self.number = signal.Signals(self.received.recv(1, socket.MSG_PEEK)[0])  # as Python's own handler writes it
        return True

    def _on_request(self) -> None:
        """The timeout runs even if the store is lost."""
        self.timer.start()

    def _exit(self) -> None:
        remove_private_folder()
        os._exit(128 + self.number)
