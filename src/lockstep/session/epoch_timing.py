"""Seconds of epochs and of the phases of their steps, evaluations left out."""

import time

import torch

from lockstep.monitor import work_of
from lockstep.plan import Plan
from lockstep.sums.phases import Phases


class EpochTiming:
    """`work`: what the training of the last epoch has taken, by the names of curves; `samples`: trained on, in all."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.plan, self.device = plan, device
        self.phases = Phases()
        self.samples = 0
        self.work: dict[str, float] = {}
        self.epoch_seconds: list[float] = []
        self.since, self.samples_before, self.paused_at = 0.0, 0, 0.0

    def begin_epoch(self) -> None:
        self.since, self.samples_before = time.perf_counter(), self.samples
        self.phases.begin()

    def end_steps(self) -> None:
        """End the training of an epoch, before its validation."""
        speed = (self.samples - self.samples_before) / (time.perf_counter() - self.since)
        self.epoch_seconds.append(self.phases.total)
        work = work_of(self.plan, self.device, self.phases.of_batch())
        self.work = {"samples_per_second": speed, **work}

    def pause(self) -> None:
        """Begin an evaluation."""
        self.paused_at = time.perf_counter()

    def resume(self) -> None:
        """End an evaluation."""
        self.since += time.perf_counter() - self.paused_at
        self.phases.begin()
