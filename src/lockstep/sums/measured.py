"""What a run has measured so far: this rank's sums of the epoch under way, and the metrics of all ranks."""

import math
import time

import torch
from torch import Tensor

from lockstep.objectives.objective import LOSS, SAMPLES, Objective
from lockstep.parallel.messages import all_reduce_sums
from lockstep.sums.running import BatchStats, RunningSums


class Measured:
    """`results` are the latest metrics, in float64; `trained` counts the samples that this run trained on.

    `confusion`: the counts (true, predicted) of the latest validation, over all ranks, where there are classes."""

    def __init__(self, objective: Objective, device: torch.device) -> None:
        self.objective, self.device = objective, device
        self.epoch = RunningSums(objective)
        self.results: dict[str, float] = {}
        self.trained = 0
        self.confusion: Tensor | None = None

    def end_epoch(self, validated: Tensor | None) -> dict[str, float]:
        """Training's metrics and validation's, which are returned. To be called by every rank.

        Args:
            validated: this rank's `EvaluationSums.totals`; they meet those of training in one message.
        """
        own = self.epoch.sums
        totals = all_reduce_sums(own if validated is None else torch.cat([own, validated]), self.device)
        training, validation = totals[: len(own)], totals[len(own) :]
        self.epoch = RunningSums(self.objective)
        self.trained += int(training[SAMPLES])
        self.results |= self.objective.metrics("train", training)
        found = {} if validated is None else self.objective.metrics("val", validation)
        self.results |= found
        self.confusion = self.objective.confusion_of(validation) if len(validation) and self.objective.classes else None
        return found

    def end_evaluation(self, stage: str, totals: Tensor) -> tuple[dict[str, float], Tensor]:
        """Return the metrics of a test, or of a validation within an epoch, and its confusion counts. As above."""
        totals = all_reduce_sums(totals, self.device)
        metrics = self.objective.metrics(stage, totals)
        self.results |= metrics
        return metrics, self.objective.confusion_of(totals)


class StepCurve:
    """Every N optimizer steps a point on the curves: the loss of all ranks since the last one, samples per second.

    Every rank has one, because a loss over all ranks takes all of them.
    """

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
