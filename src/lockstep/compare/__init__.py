"""Where two runs part: every quantity of their records, step by step."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.compare.folder import RunFolder
from lockstep.compare.owed import Owed, owed_between
from lockstep.compare.verdict import Comparison
from lockstep.record import digest
from lockstep.refusal import Refusal, require

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Comparison", "RunFolder", "compare", "compare_runs"]

FIELDS = {
    "samples": "samples",
    "ids": "sample ids",
    "lr": "learning rate",
    "loss_sum": "loss",
    "grad_norm": "gradient norm",
}
"""The fields of a step, in the order in which a difference is the other's cause."""

VALIDATION, TEST, TENSORS = range(len(FIELDS) + 1, len(FIELDS) + 4)
"""What comes behind the fields of the last step, in this order."""


def compare(a: Path, b: Path, tolerance: float | None = None) -> Comparison:
    """Compare two run folders: every field of every step, validation, test, every parameter and buffer.

    Args:
        tolerance: instead of what the two plans owe each other.

    Raises:
        Refusal: a folder that holds no run.
    """
    if tolerance is not None:
        why = "it is the largest difference allowed"
        require(0 <= tolerance < math.inf, "tolerance", tolerance, why, "tolerance=1e-10, or 0 for the same bits")
    return compare_runs(RunFolder(a), RunFolder(b), tolerance)


def compare_runs(left: RunFolder, right: RunFolder, tolerance: float | None = None) -> Comparison:
    """The same for two folders that have been read."""
    owed = owed_between(left.heading, right.heading) if tolerance is None else Owed(tolerance)
    comparison = Comparison(str(left.folder), str(right.folder), owed)
    _compare_steps(comparison, left, right)
    _compare_evaluations(comparison, left, right)
    _compare_tensors(comparison, left, right)
    comparison.unfinished = bool(left.steps) and not left.tensors and not right.tensors
    if not comparison.quantities:
        nothing = f"it has nothing in common with {right.folder} to compare"
        raise Refusal(f"{left.folder}: {nothing}; write the folders of two trained runs.")
    return comparison


def _compare_steps(comparison: Comparison, left: RunFolder, right: RunFolder) -> None:
    for epoch, step in sorted(left.steps.keys() | right.steps.keys()):
        where = f"epoch {epoch}, step {step}"
        pair = left.steps.get((epoch, step)), right.steps.get((epoch, step))
        if None in pair:
            here, there = ("missing" if line is None else "there" for line in pair)
            comparison.of("steps").see(here, there, where, (step, -1))
            continue
        a, b = (_with_mean_loss(line) for line in pair if line is not None)
        for order, (key, name) in enumerate(FIELDS.items()):
            comparison.of(name).see(a.get(key), b.get(key), f"{where}, {key}", (step, order))
        for run, line in ((left, a), (right, b)):
            inside = f"{where}, ranks_apart in {run.folder}"
            comparison.of("ranks in step").see(line.get("ranks_apart"), 0.0, inside, (step, len(FIELDS)))


def _with_mean_loss(line: dict[str, Any]) -> dict[str, Any]:
    """Losses are compared as means, so that a difference does not grow with the batch."""
    if isinstance(line.get("loss_sum"), float) and line.get("samples"):
        return {**line, "loss_sum": line["loss_sum"] / line["samples"]}
    return line


def _compare_evaluations(comparison: Comparison, left: RunFolder, right: RunFolder) -> None:
    last_step: dict[int, int] = {}
    for epoch, step in (*left.steps, *right.steps):
        last_step[epoch] = max(step, last_step.get(epoch, 0))
    for epoch in sorted(left.validations.keys() | right.validations.keys()):
        a, b = (run.validations.get(epoch, {}) for run in (left, right))
        for key in sorted((a.keys() | b.keys()) - {"epoch"}):
            when = (last_step.get(epoch, math.inf), VALIDATION)
            comparison.of("validation").see(a.get(key), b.get(key), f"epoch {epoch}, {key}", when)
    for key in ("test/loss", "test/acc"):
        if left.results and right.results and (key in left.results or key in right.results):
            where = f"after the last epoch, {key}"
            comparison.of("test").see(left.results.get(key), right.results.get(key), where, (_end(left, right), TEST))


def _end(left: RunFolder, right: RunFolder) -> float:
    """The last optimizer step."""
    return max((step for _epoch, step in (*left.steps, *right.steps)), default=0)


def _compare_tensors(comparison: Comparison, left: RunFolder, right: RunFolder) -> None:
    names = [*left.tensors, *(right.tensors.keys() - left.tensors.keys())]
    end, weights = _end(left, right), None
    for order, name in enumerate(names):
        values: tuple[Any, Any] = left.tensors.get(name), right.tensors.get(name)
        if None not in values and values[0] != values[1]:
            weights = weights or (left.weights(), right.weights())
            values = _furthest(name, values, weights)
        comparison.of(name).see(*values, "after the last epoch", (end, TENSORS + order))


def _furthest(
    name: str, digests: tuple[str, str], weights: tuple[Mapping[str, "Tensor"], Mapping[str, "Tensor"]]
) -> tuple[float | str, float | str]:
    """The two numbers, of all in a tensor of the last checkpoints, that are furthest apart.

    The digests instead where the checkpoints cannot tell: one is lost or damaged, or not what was recorded.
    """
    if not all(name in one for one in weights):
        return digests
    a, b = (one[name] for one in weights)
    if a.shape != b.shape or tuple(digest({name: tensor}) for tensor in (a, b)) != digests:
        return digests
    a, b = a.double(), b.double()
    index = ((a - b).abs() / a.abs().maximum(b.abs()).clamp(min=1)).argmax()
    return a.flatten()[index].item(), b.flatten()[index].item()
