"""Graceful shutdown: a first signal requests a stop; all ranks stop after the same batch, with a checkpoint of it.

The process that handles signals (the command, or each rank of an external launcher) creates a file in the job's folder.
A collective in every step would be slow. So each rank has a thread that polls for the file, and for a peer's note in
the store. On a request it pauses its rank after the current batch, writes that batch's number to the store, and reads
the peers'; all stop after the largest.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from lockstep.launch.signals import ENDING, signal_handlers

SHUTDOWN_TIMEOUT = 8.0  # s between a request to stop and SIGKILL
COALESCE = 0.3  # s within which signals count as one: timeout(1) signals its child, and the whole group with it
POLL_INTERVAL = 0.1
STOP_REQUESTED, ACCEPTS_STOP = "stop", "accepts-stop"  # files: the request; the ranks' marker that they accept one


class Stop:
    """Tells a rank whether to stop before training is done; without a folder it never does. `store`: of all ranks."""

    def __init__(self, folder: Path | None = None, rank: int = 0, world_size: int = 1, store: Any = None) -> None:
        self.folder, self.rank, self.world_size, self.store = folder, rank, world_size, store
        self.lock, self.decided, self.ended = threading.Lock(), threading.Event(), threading.Event()
        self.pause_after, self.stop_after, self.batches = math.inf, math.inf, 0

    @contextmanager
    def accepting_stop(self, batches: int) -> Iterator[None]:
        """Accept requests while training runs, which begins after `batches` in all."""
        if self.folder is None:
            yield
            return
        import torch.distributed as dist

        self.batches, marker = batches, self.folder / ACCEPTS_STOP
        thread = threading.Thread(target=self._watch, args=(self.folder,), daemon=True)
        thread.start()
        marker.touch()
        try:
            yield
            if dist.is_initialized():
                dist.barrier()  # detects a peer that SIGSTOP has stopped in its last step, or while it saves
        finally:
            marker.unlink(missing_ok=True)
            self.ended.set()
            thread.join(1.0)  # longer only if the store does not answer

    def should_stop(self, batches: int) -> bool:
        """Whether training stops after this batch, counted in all. Every rank calls it after every batch."""
        with self.lock:
            self.batches = batches
            if batches < self.pause_after:
                return False
        self.decided.wait()
        return batches >= self.stop_after

    def _watch(self, folder: Path) -> None:
        try:
            while not (folder / STOP_REQUESTED).exists() and not (self.store and self.store.check([STOP_REQUESTED])):
                if self.ended.wait(POLL_INTERVAL):
                    return
            if self.store is not None:
                self.store.set(STOP_REQUESTED, "")
            with self.lock:
                batch = self.pause_after = self.batches + 1
            self.stop_after = self._last_batch(batch)
        except (RuntimeError, OSError, ValueError):
            pass  # the store is gone: the ranks are killed after SHUTDOWN_TIMEOUT
        finally:
            self.decided.set()

    def _last_batch(self, batch: int) -> int:
        """Return the largest batch of all ranks."""
        if self.store is None:
            return batch
        keys = [f"{STOP_REQUESTED} {rank}" for rank in range(self.world_size)]
        self.store.set(keys[self.rank], str(batch))
        while not self.store.check(keys):
            if self.ended.wait(POLL_INTERVAL):
                return batch
        return max(int(self.store.get(key)) for key in keys)


@contextmanager
def first_signal_requests_stop(folder: Path, end: Callable[[int], object] | None = None) -> Iterator[list[int]]:
    """Let the first signal request a stop if the ranks accept it; yield the list of it.

    Args:
        folder: of the job.
        end: called with that signal's number if the process is not done SHUTDOWN_TIMEOUT later; later signals are
            ignored, since an external launcher may pass on several. By default later signals are handled as before,
            and one is sent then.
    """
    requests, main_thread = list[int](), threading.main_thread().ident or 0
    timer = threading.Timer(SHUTDOWN_TIMEOUT, lambda: (end or partial(signal.pthread_kill, main_thread))(*requests))
    timer.daemon = True
    before, requested = {number: signal.getsignal(number) for number in ENDING}, float("-inf")

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        handler = before[signal.Signals(number)]
        if not requests and (folder / ACCEPTS_STOP).exists():
            requests.append(number)
            (folder / STOP_REQUESTED).touch()
            requested = time.monotonic()
            timer.start()
        elif requests and (end or time.monotonic() - requested < COALESCE):
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
