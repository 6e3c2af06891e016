"""Seconds of training steps by phase, on this rank's clock.

On a GPU these are the times of the calls, and kernels run later. DistributedDataParallel communicates in `backward`.
"""

import time
from collections.abc import Sequence

import torch

PHASES = ("data", "forward", "backward", "communication", "optimizer", "rest")


class Phases:
    """`mark` ends a phase, and begins the next."""

    def __init__(self) -> None:
        self.seconds, self.steps = dict.fromkeys(PHASES, 0.0), 0
        self.begin()

    def begin(self) -> None:
        """Discard the time since the last mark."""
        self.since = time.perf_counter()

    def mark(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] += now - self.since
        self.since = now

    def step(self) -> None:
        """End the timing of the current batch."""
        self.mark("rest")
        self.steps += 1

    @property
    def total(self) -> float:
        """Seconds of all phases, since the last call of `of_batch`."""
        return sum(self.seconds.values())

    def of_batch(self) -> dict[str, float]:
        """Return the mean seconds of a batch by phase since the last call, without phases that took no time."""
        means = {name: seconds / self.steps for name, seconds in self.seconds.items() if seconds and self.steps}
        self.seconds, self.steps = dict.fromkeys(PHASES, 0.0), 0
        return means


def synchronize(device: torch.device) -> None:
    """Wait for the work that is queued on a GPU, before reading the clock."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds_range(epochs: Sequence[float]) -> dict[str, float]:
    """Return the fastest and the slowest epoch for metrics.json; needs three epochs after a warm-up epoch."""
    timed = [seconds for seconds in epochs[1:] if seconds]
    return {"epoch_seconds_min": min(timed), "epoch_seconds_max": max(timed)} if len(timed) >= 3 else {}
