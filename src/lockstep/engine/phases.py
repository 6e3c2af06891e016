"""The seconds of a run by phase."""

import time
from collections import deque
from typing import Any

import torch
from torch import nn

from lockstep.base.text_table import columns_text, figures
from lockstep.runs.run_files import PHASES


class Phases:
    """Seconds of training by phase, of what a run does beside it, and samples. `mark` ends a phase and begins the next.

    On a GPU these are the times of the calls, unless it `waits` for the GPU at each mark. `communication` is what a
    rank waits for others within backward, after its own gradients are ready.
    totals: seconds by phase, and of what is not training; at_epoch_start: those when the last epoch ended.
    marks: those of profiler=timeline.
    """

    since: float
    watched = gradients_are_ready = False
    marks: deque[tuple[str, float, float]] | None = None

    def __init__(self, device: torch.device, waits: bool = False) -> None:
        self.device, self.waits = device, waits
        self.totals = dict.fromkeys(("start", *PHASES), 0.0)
        self.at_epoch_start = {**self.totals}
        self.batches = self.samples = 0
        self.begin()

    def begin(self, ended: str = "") -> None:
        """Begin with a batch; the time since the last mark does not count as training, but as what has `ended`."""
        now = time.perf_counter()
        if ended:
            self.totals[ended] = self.totals.get(ended, 0.0) + now - self.since
        self.since = now

    def begin_epoch(self) -> None:
        self.begin("between epochs" if self.totals["rest"] else "start")

    def mark(self, phase: str) -> None:
        if self.waits:
            synchronize(self.device)
        now = time.perf_counter()
        self.totals[phase] += now - self.since
        if self.marks is not None:
            self.marks.append((phase, self.since, now))
        self.since = now

    def watch(self, net: nn.Module) -> None:
        """Have the first parameter, whose gradient is the last one, tell when a rank's own gradients are ready."""
        first = next((each for each in net.parameters() if each.requires_grad and each.is_leaf), None)
        if first is not None and not self.watched:
            self.watched = True
            first.register_post_accumulate_grad_hook(self._end_local_backward)  # type: ignore[no-untyped-call]

    def _end_local_backward(self, _: Any) -> None:
        self.mark("backward")
        self.gradients_are_ready = True

    def end_backward(self) -> None:
        self.mark("communication" if self.gradients_are_ready else "backward")
        self.gradients_are_ready = False

    def end_batch(self, samples: int) -> None:
        self.mark("rest")
        self.batches += 1
        self.samples += samples

    @property
    def seconds(self) -> float:
        """Return the seconds of training."""
        return sum(self.totals[phase] for phase in PHASES)

    @property
    def total_seconds(self) -> dict[str, float]:
        """Return the seconds of the run by phase, without phases that took no time."""
        return {name: seconds for name, seconds in self.totals.items() if seconds}

    def synchronize(self) -> None:
        """Count what a GPU still computes as training."""
        if self.batches:
            synchronize(self.device)
            self.mark("rest")

    def end_epoch(self) -> dict[str, float]:
        """Return the mean seconds of a batch by phase, without phases that took no time."""
        self.synchronize()
        seconds = {phase: self.totals[phase] - self.at_epoch_start[phase] for phase in PHASES}
        means = {phase: value / self.batches for phase, value in seconds.items() if value}
        self.at_epoch_start, self.batches = {**self.totals}, 0
        self.begin()
        return means


def synchronize(device: torch.device) -> None:
    """Wait for the work that is queued on a GPU, before reading the clock."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def phases_text(phases: Phases) -> str:
    """Return the table of the seconds of a run by phase, and their shares."""
    seconds = phases.total_seconds
    total = sum(seconds.values()) or 1.0
    cells = [[name, figures(value), f"{value / total:.0%}"] for name, value in seconds.items()]
    return columns_text(["phase", "seconds", "share"], [*cells, ["total", figures(total), ""]])
