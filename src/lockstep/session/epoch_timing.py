"""Seconds of epochs and of the phases of their steps, without evaluations."""

import time

import torch

from lockstep.monitor import work_of
from lockstep.plan import Plan
from lockstep.sums.phases import Phases, synchronize


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
