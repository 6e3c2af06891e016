"""Where two runs part: every quantity of their records, step by step."""

import math
from pathlib import Path
from typing import Any

from lockstep.compare.folder import RunFolder
from lockstep.compare.owed import Owed, owed_between
from lockstep.compare.verdict import Comparison
from lockstep.record import UNREADABLE, digest
from lockstep.refusal import Refusal, require

__all__ = ["Comparison", "RunFolder", "compare"]

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
    left, right = RunFolder(a), RunFolder(b)
    owed = owed_between(left.heading, right.heading) if tolerance is None else Owed(tolerance)
    comparison = Comparison(str(a), str(b), owed)
    _compare_steps(comparison, left, right)
    _compare_evaluations(comparison, left, right)
    _compare_tensors(comparison, left, right)
    comparison.unfinished = bool(left.steps) and not left.tensors and not right.tensors
    if not comparison.quantities:
        raise Refusal(f"{a}: it has nothing in common with {b} to compare; write the folders of two trained runs.")
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
    for order, name in enumerate([*left.tensors, *(right.tensors.keys() - left.tensors.keys())]):
        a, b = left.tensors.get(name), right.tensors.get(name)
        where, when = "after the last epoch", (_end(left, right), TENSORS + order)
        if a is None or b is None or a == b:
            comparison.of(name).see(a, b, where, when)
        else:
            a_value, b_value = _furthest(name, left, right)
            comparison.of(name).see(a_value, b_value, where, when)


def _furthest(name: str, left: RunFolder, right: RunFolder) -> tuple[float | str, float | str]:
    """The two numbers, of all in a tensor of the last checkpoints, that are furthest apart.

    The digests instead where the checkpoints cannot tell: one is lost or damaged, or not what was recorded.
    """
    digests = left.tensors[name], right.tensors[name]
    try:
        a, b = (run.weights[name] for run in (left, right))
    except UNREADABLE:
        return digests
    if a.shape != b.shape or tuple(digest({name: tensor}) for tensor in (a, b)) != digests:
        return digests
    a, b = a.double(), b.double()
    index = ((a - b).abs() / a.abs().maximum(b.abs()).clamp(min=1)).argmax()
    return a.flatten()[index].item(), b.flatten()[index].item()
