"""Every N optimizer steps a point on the curves: the loss of all ranks since the last one, and samples per second."""

import math
import time

import torch

from lockstep.objectives.objective import LOSS, SAMPLES, Objective
from lockstep.parallel.messages import all_reduce_sums
from lockstep.sums.running import BatchStats, RunningSums


class StepCurve:
    """Every rank has one, because a loss over all ranks takes all of them."""

    def __init__(self, objective: Objective, device: torch.device) -> None:
        self.objective, self.device = objective, device
        self.resume(RunningSums(objective))

    def resume(self, sums: RunningSums) -> None:
        """The next point is of these sums too; their time is not known, so the clock starts here."""
        self.since, self.sums = time.perf_counter(), sums

    def add(self, batch: BatchStats) -> None:
        self.sums.add(batch)

    def point(self, lr: float) -> dict[str, float]:
        """By the names of the curves. To be called by every rank."""
        sums = all_reduce_sums(self.sums.sums, self.device).tolist()
        speed = sums[SAMPLES] / (time.perf_counter() - self.since)
        self.resume(RunningSums(self.objective))
        loss = sums[LOSS] / (self.objective.divisor(sums) or math.nan)
        return {"train/loss": loss, "lr": lr, "samples_per_second": speed}
