"""What a run has measured so far: this rank's sums of the epoch under way, and the metrics of all ranks."""

import torch
from torch import Tensor

from lockstep.objectives.objective import SAMPLES, Objective
from lockstep.parallel.messages import all_reduce_sums
from lockstep.sums.running import RunningSums


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
