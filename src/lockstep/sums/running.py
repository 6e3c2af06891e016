"""An objective's sums over batches: each batch's part is only stored, and all are added when the sums are read."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, cast

import torch
from torch import Tensor

from lockstep.objectives.objective import Objective
from lockstep.structures import map_tensors

Sums = Tensor
"""Shape (sums,), float64, on the CPU: in the order of `Objective.sums`."""

Scalar = Tensor | float
"""A number of one step that is read later; a tensor stays on its GPU, so that nothing waits for it."""

BatchStats = tuple[Scalar, ...]
"""What one batch adds, in the order of `Objective.sums`."""

MOST = 16
"""Samples that are shown."""


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


def batch_stats(objective: Objective, loss_sum: Tensor, outputs: Any, targets: Tensor) -> BatchStats:
    """What a batch adds to the sums."""
    outputs = outputs.detach() if isinstance(outputs, Tensor) else map_tensors(Tensor.detach, outputs)
    means = (to_scalar(mean.batch_sum(outputs, targets)) for mean in objective.means)
    counted = () if objective.ignored is None else (to_scalar(objective.counted(targets)),)
    return to_scalar(loss_sum), targets.shape[0], *means, *counted


def stack_stats(objective: Objective, batches: Sequence[BatchStats]) -> Tensor:
    """(batches, sums): the `Sums` of each."""
    columns = [to_floats(column) for column in zip(*batches, strict=True)] or [()] * len(objective.sums)
    return torch.tensor(columns, dtype=torch.float64).T


class RunningSums:
    """Sums over batches, one added after the other."""

    def __init__(self, objective: Objective, begun: Sums | None = None) -> None:
        self.totals = [0.0] * len(objective.sums) if begun is None else begun.tolist()
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


@dataclass
class PredictionSamples:
    """What rank 0 keeps of a validation to be shown, of its share.

    `worst`: inputs, true class, predicted class and confidence of wrong answers, the surest first.

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


class EvaluationSums:
    """Sums over the batches of an evaluation and, where there are classes, its confusion counts."""

    def __init__(self, objective: Objective, device: torch.device, shown: PredictionSamples | None = None) -> None:
        self.objective, self.running, self.shown = objective, RunningSums(objective), shown
        self.counts = torch.zeros(objective.classes, objective.classes, dtype=torch.int64, device=device)

    def add(self, batch: BatchStats, outputs: Tensor, targets: Tensor, inputs: Tensor | None = None) -> None:
        self.running.add(batch)
        if self.shown is not None and inputs is not None:
            self.shown.add(inputs, outputs, targets)
        if self.objective.classes:
            self.counts += confusion(outputs, targets, self.objective.classes, self.objective.ignored)

    @property
    def totals(self) -> Tensor:
        """The sums and the counts behind them in one row of float64, exact below 2^53, for one all-reduce."""
        sums = self.running.sums
        return torch.cat([sums, self.counts.flatten().to(sums)])


def confusion(outputs: Tensor, targets: Tensor, classes: int, ignored: int | None = None) -> Tensor:
    """How often each class (row) was taken for each (column): int64 counts, (classes, classes), to be added."""
    pairs = targets * classes + outputs.argmax(dim=1)
    pairs = pairs.flatten() if ignored is None else pairs[targets != ignored]
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)
