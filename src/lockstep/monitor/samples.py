"""Predictions of a validation that are shown: the most confident errors, and scores."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

SHOWN_SAMPLES = 16


@dataclass
class PredictionSamples:
    """Predictions of rank 0's share of a validation, to be shown.

    worst: inputs, true class, predicted class and confidence of wrong predictions, the most confident first.
    scores: probabilities (n, classes) and classes (n,) of each batch, if `keeps_scores`.
    classes: the width of the outputs.
    """

    keeps_scores: bool = False
    worst: tuple[Tensor, ...] | None = None
    scores: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    classes: int = 0

    def add(self, inputs: Tensor | None, outputs: Tensor, targets: Tensor) -> None:
        """Add a batch, without waiting for a GPU unless scores are kept, if its samples have one class each."""
        if outputs.dim() != 2 or targets.dim() != 1 or not len(targets) or (inputs is None and not self.keeps_scores):
            return
        self.classes = outputs.shape[1]
        probabilities = outputs.detach().float().softmax(1)
        if inputs is not None:
            confidence, predicted = probabilities.max(1)
            confidence = confidence.where((predicted != targets) & (targets >= 0), -1.0)
            worst = _most_confident(inputs, targets, predicted, confidence)
            if self.worst is not None:
                worst = _most_confident(*map(torch.cat, zip(self.worst, worst, strict=True)))
            self.worst = worst
        if self.keeps_scores:
            self.scores.append((probabilities.cpu(), targets.cpu()))


def _most_confident(*columns: Tensor) -> tuple[Tensor, ...]:
    *_, confidence = columns
    order = confidence.topk(min(SHOWN_SAMPLES, len(confidence))).indices
    return tuple(column[order] for column in columns)
