"""Graceful shutdown: after a request all ranks stop after the same batch, with a checkpoint of it.

A collective in every step would be slow. So each rank has a thread that polls for a request. On one it pauses its rank
after the current batch, writes that batch's number to the store, and reads the peers'; all stop after the largest.
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
from lockstep.launch.signals import signal_handlers
from lockstep.launch.topology import ACCEPTS_STOP, SHUTDOWN_TIMEOUT, STOP_REQUESTED, Stop

POLL_INTERVAL = 0.1


class StopRequest(Stop):
    """A request by `requested` on any rank. All ranks agree on one batch, through the store if there are several."""

    def __init__(self, requested: Callable[[], bool], rank: int, world_size: int, store: Store | None) -> None:
        self.requested, self.rank, self.world_size, self.store = requested, rank, world_size, store
        self.lock, self.decided, self.ended = threading.Lock(), threading.Event(), threading.Event()
        self.pause_after: float = math.inf
        self.stop_after: float = math.inf
        self.batches = 0

    @contextlib.contextmanager
    def accepting_stop(self, batches: int) -> Iterator[None]:
        self.batches = batches
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
            if dist.is_initialized():
                dist.barrier()  # detects a peer that SIGSTOP has stopped in its last step, or while it saves
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
            while not (self.requested() or (self.store is not None and self.store.check([STOP_REQUESTED]))):
                if self.ended.wait(POLL_INTERVAL):
                    return
            self._on_request()
            if self.store is not None:
                self.store.set(STOP_REQUESTED, "")
            with self.lock:
                self.pause_after = self.batches + 1
            self.stop_after = self._last_batch(int(self.pause_after))
        except (RuntimeError, OSError, ValueError):
            pass  # the store is gone: the ranks are killed after SHUTDOWN_TIMEOUT
        finally:
            self.decided.set()

    def _on_request(self) -> None:
        """Called once, before the request is written to the store."""

    def _last_batch(self, batch: int) -> float:
        """Return the largest batch of all ranks."""
        if self.store is None:
            return batch
        keys = [f"{STOP_REQUESTED} {rank}" for rank in range(self.world_size)]
        self.store.set(keys[self.rank], str(batch))
        while not self.store.check(keys):
            if self.ended.wait(POLL_INTERVAL):
                return batch
        return max(int(self.store.get(key)) for key in keys)


class FileRequest(StopRequest):
    """A request by the command that started the ranks: a file, if rank 0's marker says that they accept it."""

    def __init__(self, folder: Path, rank: int, world_size: int, store: Store | None) -> None:
        super().__init__((folder / STOP_REQUESTED).exists, rank, world_size, store)
        self.marker = folder / ACCEPTS_STOP

    @contextlib.contextmanager
    def accepting_stop(self, batches: int) -> Iterator[None]:
        with super().accepting_stop(batches):
            if self.rank == 0:
                self.marker.touch()
            try:
                yield
            finally:
                if self.rank == 0:
                    self.marker.unlink(missing_ok=True)


class SignalRequest(StopRequest):
    """A request by the signal `number`, as torchrun and SLURM pass on. After SHUTDOWN_TIMEOUT this process exits."""

    def __init__(self, rank: int, world_size: int, store: Store | None) -> None:
        super().__init__(self._signalled, rank, world_size, store)
        self.accepted, self.number = False, signal.SIGTERM
        self.timer = threading.Timer(SHUTDOWN_TIMEOUT, self._exit)
        self.timer.daemon = True

    @contextlib.contextmanager
    def accepting_stop(self, batches: int) -> Iterator[None]:
        """Listen at a wake-up socket: Python runs handlers in the main thread, which may wait for a peer in C++."""
        self.received, sender = socket.socketpair()
        sender.setblocking(False)
        in_main = threading.current_thread() is threading.main_thread()  # Ray Train calls `run` in another one
        descriptor = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False) if in_main else -1
        try:
            with signal_handlers(lambda *_: None), super().accepting_stop(batches):
                yield
        finally:
            self.timer.cancel()
            self.accepted = self._signalled()  # also one that came while a peer was lost
            if in_main:
                signal.set_wakeup_fd(descriptor)
            sender.close()
            self.received.close()

    def _signalled(self) -> bool:
        if not select.select([self.received], [], [], 0)[0]:
            return False
        self.number = signal.Signals(self.received.recv(1, socket.MSG_PEEK)[0])  # as Python's own handler writes it
        return True

    def _on_request(self) -> None:
        """Start the timer, which exits even if the store is lost."""
        self.timer.start()

    def _exit(self) -> None:
        remove_private_folder()
        os._exit(128 + self.number)
