"""An objective's sums over batches and ranks: those of each batch are stored, and added when the totals are read."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, cast

import torch
from torch import Tensor

from lockstep.objectives.objective import Objective
from lockstep.parallel.messages import all_reduce_sums
from lockstep.structures import map_tensors

Scalar = Tensor | float
"""A number of one step that is read later; a tensor stays on its GPU, so that nothing waits for it."""

BatchStats = tuple[Scalar, ...]  # the sums of one batch, in the order of `Objective.sums`

SHOWN_SAMPLES = 16


def to_scalar(number: Tensor) -> Scalar:
    """Return the value of a tensor, but on a GPU the tensor.

    Thousands of small tensors, some from each step, would fragment the CPU memory that a net allocates and frees.
    """
    return number.detach() if number.is_cuda else number.item()


def to_floats(numbers: Sequence[Scalar]) -> Sequence[float]:
    """Return the values of stored numbers; waits for each GPU once."""
    if not any(isinstance(number, Tensor) for number in numbers):
        return cast(Sequence[float], numbers)
    tensors = [torch.as_tensor(number) for number in numbers]
    if len({tensor.device for tensor in tensors}) > 1:
        tensors = [tensor.cpu() for tensor in tensors]
    floats: list[float] = torch.stack(tensors).double().tolist()
    return floats


def batch_stats(objective: Objective, loss_sum: Tensor, outputs: Any, targets: Tensor) -> BatchStats:
    outputs = outputs.detach() if isinstance(outputs, Tensor) else map_tensors(Tensor.detach, outputs)
    means = (to_scalar(mean.compute(outputs, targets)) for mean in objective.means)
    counted = () if objective.ignored is None else (to_scalar(targets.ne(objective.ignored).sum()),)
    return to_scalar(loss_sum), targets.shape[0], *means, *counted


def stack_stats(objective: Objective, batches: Sequence[BatchStats]) -> Tensor:
    """Return the sums of each batch, float64, shape (batches, sums)."""
    columns = [to_floats(column) for column in zip(*batches, strict=True)] or [()] * len(objective.sums)
    return torch.tensor(columns, dtype=torch.float64).T


class RunningSums:
    """Sums over batches, added in their order; float64, on the CPU, in the order of `Objective.sums`."""

    def __init__(self, objective: Objective, begun: Tensor | None = None) -> None:
        self.totals = [0.0] * len(objective.sums) if begun is None else begun.tolist()
        self.batches: list[BatchStats] = []

    def add(self, batch: BatchStats) -> None:
        self.batches.append(batch)

    @property
    def sums(self) -> Tensor:
        if self.batches:
            columns = zip(self.totals, zip(*self.batches, strict=True), strict=True)
            self.totals = [reduce(operator.add, to_floats(column), total) for total, column in columns]
            self.batches = []
        return torch.tensor(self.totals, dtype=torch.float64)

    def reduce(self, device: torch.device) -> list[float]:
        """Return the sums over all ranks, and begin anew. To be called by every rank."""
        sums: list[float] = all_reduce_sums(self.sums, device).tolist()
        self.totals = [0.0] * len(sums)
        return sums


@dataclass
class PredictionSamples:
    """Predictions of rank 0's share of a validation, to be shown.

    worst: inputs, true class, predicted class and confidence of wrong predictions, the most confident first.
    scores: probabilities (n, classes) and classes (n,) of each batch, if `keeps_scores`.
    """

    keeps_scores: bool = False
    worst: tuple[Tensor, ...] | None = None
    scores: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def add(self, inputs: Tensor, outputs: Tensor, targets: Tensor) -> None:
        """Add a batch, without waiting for a GPU, if its samples have one class each."""
        if outputs.dim() != 2 or targets.dim() != 1 or not len(targets):
            return
        probabilities = outputs.detach().float().softmax(1)
        confidence, predicted = probabilities.max(1)
        confidence = confidence.where(predicted != targets, -1.0)
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


class EvaluationSums:
    """Sums over the batches of an evaluation and, if there are classes, its confusion counts."""

    def __init__(self, objective: Objective, device: torch.device, shown: PredictionSamples | None = None) -> None:
        self.objective, self.running, self.shown = objective, RunningSums(objective), shown
        self.counts = torch.zeros(objective.classes, objective.classes + 1, dtype=torch.int64, device=device)

    def add(self, batch: BatchStats, outputs: Tensor, targets: Tensor, inputs: Tensor | None = None) -> None:
        self.running.add(batch)
        if self.shown is not None and inputs is not None:
            self.shown.add(inputs, outputs, targets)
        if self.objective.classes:
            self.counts += confusion(outputs, targets, self.objective.classes, self.objective.ignored)

    @property
    def totals(self) -> Tensor:
        """The sums followed by the counts, in one row of float64, exact below 2^53, for one all-reduce."""
        sums = self.running.sums
        return torch.cat([sums, self.counts.flatten().to(sums)])


def confusion(outputs: Tensor, targets: Tensor, classes: int, ignored: int | None = None) -> Tensor:
    """Return how often each class (row) was predicted as each class (column): int64, (classes, classes + 1).

    The last column is for outputs that are no class of the data, of a net with more outputs.
    """
    pairs = targets * (classes + 1) + outputs.argmax(dim=1).clamp(max=classes)
    pairs = pairs.flatten() if ignored is None else pairs[targets != ignored]
    return torch.bincount(pairs, minlength=classes * (classes + 1)).view(classes, classes + 1)
