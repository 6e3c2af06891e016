"""Graceful shutdown: after a request all ranks stop after the same batch, with a checkpoint of it.

A rank must not leave its peers in the middle of a step, and a collective in every step would be slow. So each rank has
a thread that polls for a request. On one it pauses its rank's training after the current batch, writes that batch's
number to the store, and reads the peers'; all stop after the largest. No rank's thread waits for another's training,
so it cannot deadlock.
"""

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.launch.topology import ACCEPTS_STOP, STOP_REQUESTED, Stop

POLL_INTERVAL = 0.1


class Request(Stop):
    """A request by `requested` on any rank. All ranks agree on one batch, through the store if there are several."""

    def __init__(self, requested: Callable[[], bool], rank: int, world_size: int, store: Store | None) -> None:
        self.requested, self.rank, self.world_size, self.store = requested, rank, world_size, store
        self.lock, self.decided, self.ended = threading.Lock(), threading.Event(), threading.Event()
        self.pause_after: float = math.inf
        self.stop_after: float = math.inf
        self.batches = 0

    @contextlib.contextmanager
    def listening(self, batches: int) -> Iterator[None]:
        self.batches = batches
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
            if dist.is_initialized():
                dist.barrier()  # finds a peer that SIGSTOP has stopped in its last step, or while it saves
        finally:
            self.ended.set()
            thread.join(1.0)  # longer only if the store does not answer

    def should_stop(self, batches: int) -> bool:
        with self.lock:
            self.batches = batches
            if batches < self.pause_after:
                return False
        self.decided.wait()
        return batches >= self.stop_after

    def _watch(self) -> None:
        try:
            while not (self.requested() or self._requested_by_peer()):
                if self.ended.wait(POLL_INTERVAL):
                    return
            self._on_request()
            if self.store is not None:
                self.store.set(STOP_REQUESTED, "")
            with self.lock:
                self.pause_after = self.batches + 1
            self.stop_after = self._agreed(int(self.pause_after))
        except (RuntimeError, OSError, ValueError):
            pass  # the store is gone: the requester kills the ranks after SHUTDOWN_TIMEOUT
        finally:
            self.decided.set()

    def _requested_by_peer(self) -> bool:
        """Whether another rank has written its request to the store."""
        return self.store is not None and self.store.check([STOP_REQUESTED])

    def _on_request(self) -> None:
        """Called once, before the request is written to the store."""

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
    """A request by the command that started the ranks: it creates a file, if rank 0's marker says that they listen."""

    def __init__(self, folder: Path, rank: int, world_size: int, store: Store | None) -> None:
        super().__init__((folder / STOP_REQUESTED).exists, rank, world_size, store)
        self.folder = folder

    @contextlib.contextmanager
    def listening(self, batches: int) -> Iterator[None]:
        marker = self.folder / ACCEPTS_STOP
        with super().listening(batches):
            if self.rank == 0:
                marker.touch()
            try:
                yield
            finally:
                if self.rank == 0:
                    marker.unlink(missing_ok=True)
