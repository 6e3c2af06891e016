"""The position of training, what follows a batch, and the seconds of a run by phase."""

import time
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from lockstep.base.text_table import columns_text, figures
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.checkpoint.content import Progress
from lockstep.runs.run_files import PHASES


class RunProgress:
    """`position`: epochs, batches of the next one and optimizer steps that are done.

    interrupted_epoch: max_steps ends training within an epoch. ended: a callback has ended training early.
    """

    def __init__(self, plan: Plan, context: RankContext, position: Progress, has_validation: bool) -> None:
        self.plan, self.context, self.position, self.has_validation = plan, context, position, has_validation
        self.interrupted_epoch = self.ended = False

    @property
    def _batches(self) -> int:
        return self.position.epochs * (self.plan.steps.epoch_batches or 2**31) + self.position.batch

    def accepting_stop(self) -> AbstractContextManager[None]:
        """Return a context around training, in which a request to stop is accepted."""
        return self.context.stop.accepting_stop(self._batches)

    def should_stop(self) -> bool:
        """Whether a stop was requested. To be called after each batch, on every rank."""
        return self.context.stop.should_stop(self._batches)

    def interrupts_epoch(self, trainer: Any) -> bool:
        """Whether max_steps ends training after this batch, which is not the last of its epoch."""
        is_over = self.plan.steps.is_finished(self.position.epochs, trainer.global_step)
        self.interrupted_epoch = is_over and not trainer.should_stop
        return self.interrupted_epoch

    def is_validation_due(self, trainer: Any) -> bool:
        """Whether a validation follows the current batch; as in Lightning, also where a callback stops training."""
        plan, epoch = self.plan, self.position.epochs + 1
        is_scheduled = plan.steps.is_validation_due(epoch, self.position.batch, trainer.is_last_batch)
        stopped = trainer.should_stop and epoch % (plan.trainer.check_val_every_n_epoch or 1) == 0
        return self.has_validation and (is_scheduled or stopped)

    def epoch_goes_on(self, trainer: Any) -> bool:
        """Whether the epoch does not end after this batch; one that max_steps interrupts does not end."""
        return not trainer.is_last_batch and (self.interrupted_epoch or not trainer.should_stop)


class Phases:
    """Seconds of training by phase, of what a run does beside it, and samples. `mark` ends a phase and begins the next.

    On a GPU these are the times of the calls, unless it `waits` for the GPU at each mark. `communication` is what a
    rank waits for others within backward, after its own gradients are ready.
    totals: seconds of all complete epochs by phase, and of what is not training.
    """

    since: float
    watched = gradients_are_ready = False

    def __init__(self, device: torch.device, waits: bool = False) -> None:
        self.device, self.waits = device, waits
        self.totals = dict.fromkeys(("start", *PHASES), 0.0)
        self.by_phase = dict.fromkeys(PHASES, 0.0)
        self.steps = self.samples = 0
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
        self.by_phase[phase] += now - self.since
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

    def step(self, samples: int) -> None:
        self.mark("rest")
        self.steps += 1
        self.samples += samples

    @property
    def seconds(self) -> float:
        """Return the seconds of training."""
        return sum(self.totals[phase] + self.by_phase[phase] for phase in PHASES)

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

    def end_epoch(self) -> dict[str, float]:
        """Return the mean seconds of a batch by phase, without phases that took no time."""
        self.synchronize()
        for name, seconds in self.by_phase.items():
            self.totals[name] += seconds
        means = {name: seconds / self.steps for name, seconds in self.by_phase.items() if seconds}
        self.by_phase, self.steps = dict.fromkeys(PHASES, 0.0), 0
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
