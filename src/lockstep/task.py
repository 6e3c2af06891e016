"""What a net is trained for: pure functions from its outputs to sums, which both engines add and divide once.

Sums, never means: over ranks and batches of unequal size only sums can be added (a mean of means is wrong).
"""

from collections.abc import Mapping
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

EVALUATED = tuple(f"{stage}/{name}" for stage in ("val", "test") for name in ("loss", "acc", "f1"))
"""What evaluation measures, by the names that results and curves have; regression has the losses alone."""

Sums = Tensor
"""Shape (3,), float64: loss sum, correct count, sample count."""


class Task(Protocol):
    """How outputs are judged: the loss summed over the samples, and the correct ones counted."""

    def loss_sum(self, outputs: Tensor, targets: Tensor) -> Tensor: ...

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor: ...


class Classification:
    """Cross-entropy over logits of shape (batch, classes) and int64 targets of shape (batch,)."""

    def loss_sum(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="sum")

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(dim=1) == targets).sum()


class Regression:
    """Squared error over outputs and targets of shape (batch, outputs), a sample's being the mean over its outputs.

    Nothing is 'correct'.
    """

    def loss_sum(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(outputs, targets, reduction="sum") / outputs.shape[1]

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.zeros((), dtype=torch.int64, device=outputs.device)


def task_of(classes: int) -> Task:
    """Classification where there are classes, regression where there are none."""
    return Classification() if classes else Regression()


def sums(task: Task, loss_sum: Tensor, outputs: Tensor, targets: Tensor) -> Sums:
    """One batch's contribution; stays on the device, so nothing waits for it."""
    outputs = outputs.detach()
    count = torch.tensor(len(targets), dtype=torch.float64, device=outputs.device)
    return torch.stack([loss_sum.detach().double(), task.correct(outputs, targets).double(), count])


def means(stage: str, totals: Sums, classes: int) -> Mapping[str, float]:
    """`{stage}/loss` and, where there are classes, `{stage}/acc`, from sums over all ranks and batches."""
    loss, correct, count = totals.tolist()
    named = {f"{stage}/loss": loss / count}
    return named | {f"{stage}/acc": correct / count} if classes else named


def confusion(outputs: Tensor, targets: Tensor, classes: int) -> Tensor:
    """How often each class (row) was taken for each (column): int64 counts, (classes, classes), to be added."""
    pairs = targets * classes + outputs.argmax(dim=1)
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def macro_f1(counts: Tensor) -> float:
    """The mean over classes of F1 = 2·TP / (2·TP + FP + FN), from confusion counts over all ranks and batches.

    A class that neither occurs nor is predicted is left out, as scikit-learn's and torchmetrics' macro average does. A
    mean of ranks' or batches' F1 would be another number: F1 is no mean over samples.
    """
    hits = counts.diagonal().double()
    both = (counts.sum(0) + counts.sum(1)).double()  # 2·TP + FP + FN
    return float((2 * hits / both)[both > 0].mean())
