"""Sums over ranks: of an optimizer step, of a point on a curve."""

import math
import time
from collections.abc import Iterable

import torch
from torch import Tensor

from lockstep.objectives.objective import LOSS, SAMPLES, Objective
from lockstep.parallel.messages import all_reduce_sums
from lockstep.sums.running import BatchStats, RunningSums


class StepCurve:
    """Points on curves, each over the steps since the last one: loss of all ranks, rate, samples per second."""

    def __init__(self, objective: Objective, device: torch.device) -> None:
        self.objective, self.device = objective, device
        self.resume(RunningSums(objective))

    def resume(self, sums: RunningSums) -> None:
        """Begin the next point with these sums, and its time now."""
        self.since, self.sums = time.perf_counter(), sums

    def add(self, batch: BatchStats) -> None:
        self.sums.add(batch)

    def point(self, lr: float) -> dict[str, float]:
        """Return the values by curve. To be called by every rank."""
        sums = all_reduce_sums(self.sums.sums, self.device).tolist()
        speed = sums[SAMPLES] / (time.perf_counter() - self.since)
        self.resume(RunningSums(self.objective))
        loss = sums[LOSS] / (self.objective.divisor(sums) or math.nan)
        return {"train/loss": loss, "lr": lr, "samples_per_second": speed}


class StepCounts:
    """This rank's sums of the current optimizer step, which averages over the targets that count if some are ignored.

    Their number is unknown before the last batch of the step, so until then gradients are of a mean over samples.
    """

    def __init__(self, objective: Objective, device: torch.device) -> None:
        self.objective, self.device = objective, device
        self.sums = RunningSums(objective)

    def add(self, batch: BatchStats) -> None:
        if self.objective.ignored is not None:
            self.sums.add(batch)

    @torch.no_grad()
    def weigh(self, parameters: Iterable[Tensor]) -> None:
        """Scale the gradients, which are averaged over ranks already. To be called by every rank."""
        if self.objective.ignored is None:
            return
        sums = all_reduce_sums(self.sums.sums, self.device).tolist()
        self.sums = RunningSums(self.objective)
        counted = self.objective.divisor(sums)
        for parameter in parameters:
            if parameter.grad is not None and counted:
                parameter.grad.mul_(sums[SAMPLES] / counted)
