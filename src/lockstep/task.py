"""What a net is trained for: pure functions from its outputs to sums, which both engines add and divide once.

Sums, never means: over ranks and batches of unequal size only sums can be added (a mean of means is wrong).
"""

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor

EVALUATED = tuple(f"{stage}/{name}" for stage in ("val", "test") for name in ("loss", "acc", "f1"))
"""What evaluation measures, by the names that results and curves have; regression has the losses alone."""

Sums = Tensor
"""Shape (3,), float64, on the CPU: loss sum, correct count, sample count."""


Scalar = Tensor | float
"""A number of one step that somebody will look at later; a tensor stays on its GPU, so that nothing waits for it."""


class BatchStats(NamedTuple):
    """One batch."""

    loss_sum: Scalar
    correct: Scalar
    samples: int


class Task(Protocol):
    """How outputs are judged: the loss summed over the samples, and the correct ones counted."""

    def loss_sum(self, outputs: Tensor, targets: Tensor) -> Tensor: ...

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None: ...


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
        loss_sum, width = F.mse_loss(outputs, targets, reduction="sum"), outputs.shape[1]
        return loss_sum if width == 1 else loss_sum / width

    def correct(self, outputs: Tensor, targets: Tensor) -> None:
        return None


def task_of(classes: int) -> Task:
    """Classification where there are classes, regression where there are none."""
    return Classification() if classes else Regression()


def to_scalar(number: Tensor) -> Scalar:
    """On a CPU its value. Thousands of tensors that stay, some from each step, would lie between the blocks that a net
    takes and frees, so that none would fit into the gap of the one before, and every step would take new memory.
    """
    return number.detach() if number.is_cuda else number.item()


def to_floats(numbers: Sequence[Scalar]) -> Sequence[float]:
    """Of numbers that have been kept; waits for each GPU once."""
    if not any(isinstance(number, Tensor) for number in numbers):
        return cast(Sequence[float], numbers)
    tensors = [torch.as_tensor(number) for number in numbers]
    if len({tensor.device for tensor in tensors}) > 1:
        tensors = [tensor.cpu() for tensor in tensors]
    found: list[float] = torch.stack(tensors).double().tolist()
    return found


def batch_stats(task: Task, loss_sum: Tensor, outputs: Tensor, targets: Tensor) -> BatchStats:
    """What a batch adds to the sums."""
    correct = task.correct(outputs.detach(), targets)
    return BatchStats(to_scalar(loss_sum), 0.0 if correct is None else to_scalar(correct), len(targets))


def stack_stats(batches: Sequence[BatchStats]) -> Tensor:
    """(batches, 3): the `Sums` of each."""
    columns = [to_floats(column) for column in zip(*batches, strict=True)] or [(), (), ()]
    return torch.tensor(columns, dtype=torch.float64).T


class RunningSums:
    """Sums over batches. A batch is only kept; all are added, one after the other, when someone looks."""

    def __init__(self, begun: Sums | None = None) -> None:
        self.totals = [0.0, 0.0, 0.0] if begun is None else begun.tolist()
        self.batches: list[BatchStats] = []

    def add(self, batch: BatchStats) -> None:
        self.batches.append(batch)

    @property
    def sums(self) -> Sums:
        if self.batches:
            columns = zip(self.totals, zip(*self.batches, strict=True), strict=True)
            self.totals = [reduce(operator.add, to_floats(column), total) for total, column in columns]
            self.batches = []
        return torch.tensor(self.totals, dtype=torch.float64)


def means(stage: str, totals: Sums, classes: int) -> Mapping[str, float]:
    """`{stage}/loss` and, where there are classes, `{stage}/acc`, from sums over all ranks and batches."""
    loss, correct, count = totals.tolist()
    named = {f"{stage}/loss": loss / count}
    return named | {f"{stage}/acc": correct / count} if classes else named


def evaluation_sums(sums: Sums, counts: Tensor) -> Tensor:
    """Sums and confusion counts (classes, classes) in one row of float64, exact below 2^53, for one all-reduce."""
    return torch.cat([sums, counts.flatten().to(sums)])


def evaluation_metrics(stage: str, totals: Tensor, classes: int) -> tuple[dict[str, float], Tensor]:
    """`{stage}/loss`, and where there are classes `{stage}/acc` and `{stage}/f1`, and the confusion counts.

    Of an `evaluation` over all ranks and batches, each sample once: what is divided is divided once.
    """
    counts = totals[3:].long().view(classes, classes)
    means_of = dict(means(stage, totals[:3], classes))
    return means_of | ({f"{stage}/f1": macro_f1(counts)} if classes else {}), counts


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
