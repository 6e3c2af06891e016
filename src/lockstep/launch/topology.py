"""A process's rank and the world size, and whether it is to stop early.

Graceful shutdown: a first signal requests a stop; all ranks stop after the same batch, with a checkpoint of it. The
process that handles signals (the command, or each rank of an external launcher) creates a file in the job's folder.
A collective in every step would be slow. So each rank has a thread that polls for the file, and for a peer's note in
the store. On a request it pauses its rank after the current batch, writes that batch's number to the store, and reads
the peers'; all stop after the largest.
"""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.base.config_error import require

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


@dataclass(frozen=True)
class RankContext:
    """rank of world_size over all machines; local_rank of local_world_size on this one.

    restarts: how often all ranks have been restarted after a failure.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    restarts: int = 0
    stop: Stop = field(default_factory=Stop, compare=False)

    def __post_init__(self) -> None:
        for key, rank, size in (
            ("RANK", self.rank, self.world_size),
            ("LOCAL_RANK", self.local_rank, self.local_world_size),
        ):
            reason = f"of {size} rank{'s' if size > 1 else ''} the last is {size - 1}"
            require(0 <= rank < size, key, rank, reason, f"{key}=0 to {size - 1}, or WORLD_SIZE={rank + 1}")

    @property
    def variables(self) -> dict[str, str]:
        """torchrun's environment variables, which torch and Lightning read."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "GROUP_RANK": str((self.rank - self.local_rank) // self.local_world_size),
        }
