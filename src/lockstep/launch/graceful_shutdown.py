"""Ending early, and well: asked to stop, all ranks end after the same batch, with a checkpoint of it.

A rank must not leave its peers in the middle of a step, and asking them at every step would take a collective a step.
So each rank has a thread that looks for the request. It lets the training of its rank go no further than the end of
the batch that is under way, says at the store which one that is, and reads what the others said; the largest is where
all stop. No rank's thread waits for another's training, so it cannot deadlock.
"""

import contextlib
import math
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.launch.private_dir import remove_private_folder
from lockstep.launch.signals import ENDING
from lockstep.launch.topology import ACCEPTS_STOP, SHUTDOWN_TIMEOUT, STOP_REQUESTED, Stop

POLL_INTERVAL = 0.1
"""Seconds between two looks for the request."""


class Request(Stop):
    """Asked by whatever `asked` looks at, on any rank. All come to one decision, at the store if they have one."""

    def __init__(self, asked: Callable[[], bool], rank: int, world_size: int, store: Store | None) -> None:
        self.asked, self.rank, self.world_size, self.store = asked, rank, world_size, store
        self.lock, self.decided, self.ended = threading.Lock(), threading.Event(), threading.Event()
        self.no_further: float = math.inf
        self.last: float = math.inf
        self.batches = 0

    @contextlib.contextmanager
    def listening(self, batches: int) -> Iterator[None]:
        self.batches = batches
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
            if dist.is_initialized():
                dist.barrier()  # a rank that is stopped in its last step, or while it saves it, is missed here
        finally:
            self.ended.set()
            thread.join(1.0)  # more only if the store does not answer

    def should_stop(self, batches: int) -> bool:
        with self.lock:
            self.batches = batches
            if batches < self.no_further:
                return False
        self.decided.wait()
        return batches >= self.last

    def _watch(self) -> None:
        try:
            while not (self.asked() or self._requested_by_peer()):
                if self.ended.wait(POLL_INTERVAL):
                    return
            self._begin()
            if self.store is not None:
                self.store.set(STOP_REQUESTED, "")
            with self.lock:
                self.no_further = self.batches + 1
            self.last = self._agreed(int(self.no_further))
        except (RuntimeError, OSError, ValueError):
            pass  # the store is gone: whoever asked ends the run by force
        finally:
            self.decided.set()

    def _requested_by_peer(self) -> bool:
        """Whether another rank has been asked."""
        return self.store is not None and self.store.check([STOP_REQUESTED])

    def _begin(self) -> None:
        """A request is known here, and nobody has been told yet."""

    def _agreed(self, own: int) -> float:
        """The largest of all ranks' batches."""
        if self.store is None:
            return own
        names = [f"{STOP_REQUESTED} {rank}" for rank in range(self.world_size)]
        self.store.set(names[self.rank], str(own))
        while not self.store.check(names):
            if self.ended.wait(POLL_INTERVAL):
                return own
        return max(int(self.store.get(name)) for name in names)


class FileRequest(Request):
    """Asked by the command that started the ranks: it makes a file, where one tells it that they would heed it."""

    def __init__(self, folder: Path, rank: int, world_size: int, store: Store | None) -> None:
        super().__init__((folder / STOP_REQUESTED).exists, rank, world_size, store)
        self.folder = folder

    @contextlib.contextmanager
    def listening(self, batches: int) -> Iterator[None]:
        hearing = self.folder / ACCEPTS_STOP
        with super().listening(batches):
            if self.rank == 0:
                hearing.touch()
            try:
                yield
            finally:
                if self.rank == 0:
                    hearing.unlink(missing_ok=True)


class SignalRequest(Request):
    """Asked by a signal, as torchrun and SLURM send and pass on. Nobody else would end this process by force.

    `number` is the signal that was heeded; SIGTERM where another rank has passed on that there was one.
    """

    def __init__(self, rank: int, world_size: int, store: Store | None) -> None:
        super().__init__(self._signalled, rank, world_size, store)
        self.heeded, self.number = False, signal.SIGTERM
        self.end = threading.Timer(SHUTDOWN_TIMEOUT, self._end_by_force)
        self.end.daemon = True

    @contextlib.contextmanager
    def listening(self, batches: int) -> Iterator[None]:
        """Python runs a signal's handler in the main thread, which may be waiting for a peer: so a socket is told."""
        self.told, tell = socket.socketpair()
        tell.setblocking(False)
        before = {number: signal.signal(number, lambda *_: None) for number in ENDING}
        descriptor = signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
        try:
            with super().listening(batches):
                yield
        finally:
            self.end.cancel()
            self.heeded = self._signalled()  # else a signal while a peer was lost would be forgotten
            signal.set_wakeup_fd(descriptor)
            for number, handler in before.items():
                signal.signal(number, handler)
            tell.close()
            self.told.close()

    def _signalled(self) -> bool:
        if not select.select([self.told], [], [], 0)[0]:
            return False
        self.number = signal.Signals(self.told.recv(1, socket.MSG_PEEK)[0])  # as Python's own handler writes it
        return True

    def _begin(self) -> None:
        """The time of the ranks runs even where the store is lost."""
        self.end.start()

    def _end_by_force(self) -> None:
        remove_private_folder()
        os._exit(128 + self.number)
