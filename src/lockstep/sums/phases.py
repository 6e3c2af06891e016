"""Where a rank's steps spend their time: seconds by phase, as this rank's clock has them.

On a GPU a phase is what its calls take, and kernels run behind them; DistributedDataParallel's communication is in
`backward`, with which it overlaps.
"""

import time
from collections.abc import Sequence

import torch

PHASES = ("data", "forward", "backward", "communication", "optimizer", "rest")


class Phases:
    """`mark` ends a phase, and begins the next."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.steps = 0
        self.begin()

    def begin(self) -> None:
        """What has been until now is none of any phase."""
        self.since = time.perf_counter()

    def mark(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] += now - self.since
        self.since = now

    def step(self) -> None:
        """A batch is done."""
        self.mark("rest")
        self.steps += 1

    @property
    def total(self) -> float:
        """Seconds of all phases, since the last call of `of_batch`."""
        return sum(self.seconds.values())

    def of_batch(self) -> dict[str, float]:
        """Seconds of a batch by phase, of those that took any, since the last call."""
        found = {name: seconds / self.steps for name, seconds in self.seconds.items() if seconds and self.steps}
        self.seconds, self.steps = dict.fromkeys(PHASES, 0.0), 0
        return found


def synchronize(device: torch.device) -> None:
    """Wait for the work that is queued on a GPU, before looking at the clock."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds_range(epochs: Sequence[float]) -> dict[str, float]:
    """For metrics.json, the fastest and the slowest epoch, where enough of them tell: three, beside the first, which
    warms up."""
    told = [seconds for seconds in epochs[1:] if seconds]
    return {"epoch_seconds_min": min(told), "epoch_seconds_max": max(told)} if len(told) >= 3 else {}
