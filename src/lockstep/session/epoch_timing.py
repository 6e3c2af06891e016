"""Seconds of epochs and of the phases of their steps, evaluations left out."""

import time

import torch

from lockstep.monitor import work_of
from lockstep.plan import Plan
from lockstep.sums.phases import Phases, synchronize


class EpochTiming:
    """`seconds` of training and `samples` trained on, in all; `work`: what the last epoch has taken, by curve."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.plan, self.device = plan, device
        self.phases = Phases()
        self.seconds, self.samples = 0.0, 0
        self.seconds_before, self.samples_before = 0.0, 0
        self.started: float | None = None
        self.is_paused = False
        self.work: dict[str, float] = {}
        self.epoch_seconds: list[float] = []

    def begin_epoch(self) -> None:
        self.seconds_before, self.samples_before = self.seconds, self.samples
        self.started = time.perf_counter()
        self.phases.begin()

    def end_steps(self) -> None:
        """End the training of an epoch, before its validation."""
        self.stop()
        speed = (self.samples - self.samples_before) / (self.seconds - self.seconds_before)
        self.epoch_seconds.append(self.phases.total)
        work = work_of(self.plan, self.device, self.phases.of_batch())
        self.work = {"samples_per_second": speed, **work}

    def stop(self) -> None:
        """Add the time since the start to the seconds of training, unless it is added already."""
        if self.started is not None:
            synchronize(self.device)
            self.seconds += time.perf_counter() - self.started
            self.started = None

    def pause(self) -> None:
        """Begin an evaluation."""
        self.is_paused = self.started is not None
        self.stop()

    def resume(self) -> None:
        """End an evaluation."""
        if self.is_paused:
            self.started = time.perf_counter()
        self.phases.begin()
