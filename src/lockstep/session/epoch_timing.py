"""Seconds of epochs and of the phases of their steps, without evaluations."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import torch
from torch.optim import Optimizer

from lockstep.monitor import work_of
from lockstep.plan import Plan
from lockstep.sums.phases import Phases, synchronize
from lockstep.targets.kinds import replace_method


class EpochTiming:
    """`seconds` of training and `samples` trained on, in total; `work`: curves of the last epoch."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.plan, self.device, self.phases = plan, device, Phases()
        self.seconds, self.samples = 0.0, 0
        self.started: float | None = None
        self.is_paused = False
        self.work: dict[str, float] = {}
        self.epoch_seconds: list[float] = []

    def begin_epoch(self) -> None:
        """Start the clock of an epoch."""
        self.seconds_before, self.samples_before = self.seconds, self.samples
        self.started = time.perf_counter()
        self.phases.begin()

    def end_steps(self) -> None:
        """End the training of an epoch, before its validation."""
        self.stop()
        speed = (self.samples - self.samples_before) / (self.seconds - self.seconds_before)
        self.epoch_seconds.append(self.phases.total)
        self.work = {"samples_per_second": speed, **work_of(self.plan, self.device, self.phases.of_batch())}

    def stop(self) -> None:
        """Add the time since the start to the seconds of training, unless the clock stands."""
        if self.started is not None:
            synchronize(self.device)
            self.seconds += time.perf_counter() - self.started
            self.started = None

    def pause(self) -> None:
        """Stop the clock for an evaluation."""
        self.is_paused = self.started is not None
        self.stop()

    def resume(self) -> None:
        """Start the clock again after an evaluation."""
        if self.is_paused:
            self.started = time.perf_counter()
        self.phases.begin()


def mark_phases(module: Any, optimizers: Iterable[Optimizer], phases: Phases) -> None:
    """Mark the phases of a LightningModule's steps around its own methods, for a loop that does not mark them.

    With automatic optimization `forward` is the training step, `backward` lasts until the end of the backward pass, and
    `optimizer` until the end of the optimizer step. With manual optimization, `forward` precedes each backward pass.
    """

    def training_step(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        outputs = original(*arguments, **options)
        phases.mark("forward")
        return outputs

    def backward(original: Callable[..., None], *arguments: Any, **options: Any) -> None:
        if not module.automatic_optimization:
            phases.mark("forward")
        original(*arguments, **options)
        phases.mark("backward")

    replace_method(module, "training_step", training_step)
    replace_method(module, "backward", backward)
    for optimizer in optimizers:
        with suppress(AttributeError):  # a user's optimizer may wrap another without calling Optimizer.__init__
            optimizer.register_step_post_hook(lambda *_: phases.mark("optimizer"))
