"""Seconds of training by phase of a step, and of what a run does beside it, on this rank's clock.

On a GPU these are the times of the calls, and kernels run later. DistributedDataParallel communicates in `backward`.
"""

import time

import torch

PHASES = ("data", "forward", "backward", "communication", "optimizer", "rest")


class Phases:
    """`mark` ends a phase, and begins the next. `epochs`: seconds of complete ones; `total_samples`: of all epochs.

    totals: seconds of all complete epochs by phase, and of what is not training. waits: for the GPU, at each mark.
    """

    since: float

    def __init__(self, device: torch.device, waits: bool = False) -> None:
        self.device, self.waits = device, waits
        self.totals = dict.fromkeys(("start", *PHASES), 0.0)
        self.epochs: list[float] = []
        self.total_samples = 0
        self._reset()

    def _reset(self) -> None:
        self.by_phase, self.steps, self.samples = dict.fromkeys(PHASES, 0.0), 0, 0
        self.begin()

    def begin(self, ended: str = "") -> None:
        """Begin with a batch; the time since the last mark does not count as training, but as what has `ended`."""
        now = time.perf_counter()
        if ended:
            self.totals[ended] = self.totals.get(ended, 0.0) + now - self.since
        self.since = now

    def begin_epoch(self) -> None:
        self.begin("between epochs" if self.epochs else "start")

    def begin_evaluation(self, after_training: bool) -> None:
        """End the timing of training, if it is not over."""
        if after_training:
            self.begin_epoch()
        else:
            self.synchronize()

    def mark(self, phase: str) -> None:
        if self.waits:
            synchronize(self.device)
        now = time.perf_counter()
        self.by_phase[phase] += now - self.since
        self.since = now

    def step(self, samples: int) -> None:
        self.mark("rest")
        self.steps += 1
        self.samples += samples
        self.total_samples += samples

    @property
    def seconds(self) -> float:
        return sum(self.epochs) + sum(self.by_phase.values())

    @property
    def total_seconds(self) -> dict[str, float]:
        """Return the seconds of the run by phase, without phases that took no time."""
        seconds = {name: value + self.by_phase.get(name, 0.0) for name, value in self.totals.items()}
        return {name: value for name, value in seconds.items() if value}

    def synchronize(self) -> None:
        """Count what a GPU still computes as training."""
        if self.steps:
            synchronize(self.device)
            self.mark("rest")

    def end_epoch(self) -> tuple[float, dict[str, float]]:
        """Return samples per second, and the mean seconds of a batch by phase, without phases that took no time."""
        self.synchronize()
        self.epochs.append(sum(self.by_phase.values()))
        speed = self.samples / self.epochs[-1]
        for name, seconds in self.by_phase.items():
            self.totals[name] += seconds
        means = {name: seconds / self.steps for name, seconds in self.by_phase.items() if seconds}
        self._reset()
        return speed, means


def synchronize(device: torch.device) -> None:
    """Wait for the work that is queued on a GPU, before reading the clock."""
    if device.type == "cuda":
        torch.cuda.synchronize()
