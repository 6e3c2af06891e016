"""A process's rank and the world size, its input, and whether it is to stop early.

Graceful shutdown: a first signal requests a stop; all ranks stop after the same batch, with a checkpoint of it. The
process that handles signals (the command, or each rank of an external launcher) shares two flags with its ranks.
A collective in every step would be slow. So each rank has a thread that polls for the request, and for a peer's note
in the store. On a request it pauses its rank after the current batch, writes that batch's number to the store, and
reads the peers'; all stop after the largest.
"""

import math
import threading
from collections.abc import Iterator, Mapping, MutableSequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.plan.world import Launchable

POLL_INTERVAL = 0.1
ACCEPTS_STOP, STOP_REQUESTED = 0, 1  # the flags: whether ranks accept a request; whether there is one
STORE_KEY = "stop"
Flags = MutableSequence[int]


class Stop:
    """Tells a rank whether to stop before training is done; without flags it never does. `store`: of all ranks."""

    def __init__(self, flags: Flags | None = None, rank: int = 0, world_size: int = 1, store: Any = None) -> None:
        self.flags, self.rank, self.world_size, self.store = flags, rank, world_size, store
        self.lock, self.decided, self.ended = threading.Lock(), threading.Event(), threading.Event()
        self.pause_after, self.stop_after, self.batches = math.inf, math.inf, 0

    @contextmanager
    def accepting_stop(self, batches: int) -> Iterator[None]:
        """Accept requests while training runs, which begins after `batches` in all."""
        if self.flags is None:
            yield
            return
        import torch.distributed as dist

        self.batches = batches
        thread = threading.Thread(target=self._watch, args=(self.flags,), daemon=True)
        thread.start()
        self.flags[ACCEPTS_STOP] = 1
        try:
            yield
            if dist.is_initialized():
                dist.barrier()  # detects a peer that SIGSTOP has stopped in its last step, or while it saves
        finally:
            self.flags[ACCEPTS_STOP] = 0
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

    def _watch(self, flags: Flags) -> None:
        """Wait for a request, then for the peers' answers to it; give up when training ends, or the store is gone."""
        keys = [f"{STORE_KEY} {rank}" for rank in range(self.world_size)]
        try:
            while not flags[STOP_REQUESTED] and not self.store.check([STORE_KEY]):
                if self.ended.wait(POLL_INTERVAL):
                    return
            self.store.set(STORE_KEY, "")
            with self.lock:
                self.pause_after = self.batches + 1
            self.store.set(keys[self.rank], str(self.pause_after))
            while not self.store.check(keys):
                if self.ended.wait(POLL_INTERVAL):
                    return
            self.stop_after = max(int(self.store.get(key)) for key in keys)
        except (RuntimeError, OSError, ValueError):
            pass  # the ranks are killed after SHUTDOWN_TIMEOUT
        finally:
            self.decided.set()


@dataclass(frozen=True)
class RankContext:
    """rank of world_size over all machines; local_rank of local_world_size on this one."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    stop: Stop = field(default_factory=Stop, compare=False)

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


@dataclass(frozen=True)
class LaunchSpec:
    """The input of a rank: the work, and the engine (a module with `run(work, context)`).

    group_file: where the ranks meet.
    flags: by which the command asks them to stop.
    main: the pickled objects of the command's `__main__` that the work names.
    """

    work: Launchable
    engine: str
    group_file: Path
    flags: Flags
    environment: Mapping[str, str]
    main: bytes | None = None
