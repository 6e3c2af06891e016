"""What rank 0 keeps of a validation to be shown: its samples that are classified worst, and, if asked for, all scores.

A rank's share is enough to look at; what is measured is over all ranks (`measured`).
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

MOST = 16
"""Samples that are shown."""


@dataclass
class Shown:
    """`worst`: inputs, true class, predicted class and confidence of wrong answers, the surest first.

    `scores`: probabilities (n, classes) and classes (n,) of each batch, where `keeps_scores`.
    """

    keeps_scores: bool = False
    worst: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
    scores: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def add(self, inputs: Tensor, outputs: Tensor, targets: Tensor) -> None:
        """A batch; nothing waits for a GPU. Only samples of one class each are kept."""
        if outputs.dim() != 2 or targets.dim() != 1 or not len(targets):
            return
        probabilities = outputs.detach().float().softmax(1)
        confidence, predicted = probabilities.max(1)
        confidence = confidence.where(predicted != targets, -1.0)
        order = confidence.topk(min(MOST, len(confidence))).indices
        found = inputs[order], targets[order], predicted[order], confidence[order]
        if self.worst is not None:
            both = [torch.cat(pair) for pair in zip(self.worst, found, strict=True)]
            order = both[3].topk(min(MOST, len(both[3]))).indices
            found = both[0][order], both[1][order], both[2][order], both[3][order]
        self.worst = found
        if self.keeps_scores:
            self.scores.append((probabilities.cpu(), targets.cpu()))
