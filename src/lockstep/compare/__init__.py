"""Where two runs differ: every quantity of their records, step by step, and everything else that they left."""

import math
from pathlib import Path
from typing import Any

from lockstep.compare.checkpoints import compare_files
from lockstep.compare.leaves import MISSING, compare_leaves, compare_values, furthest
from lockstep.compare.ranks import compare_ranks
from lockstep.compare.recorded_run import RecordedRun
from lockstep.compare.tolerance import Tolerance, likely_reason, tolerance_between
from lockstep.compare.verdict import Comparison
from lockstep.config_error import ConfigError, require
from lockstep.record.digest import digest

__all__ = ["Comparison", "RecordedRun", "compare", "compare_runs"]

FIELDS = ("samples", "ids", "lr", "loss_sum", "grad_norm")
"""The fields of a step, a cause before its effects."""
LOGGED = ("logged", "metrics")
"""What a LightningModule has logged on a step: numbers, and metrics as objects. A mean over ranks of a metric is no
metric of the global batch, so metrics are compared only where identical bits are expected.
"""

RANKS, VALIDATION, RESULTS, TENSORS = range(len(FIELDS), len(FIELDS) + 4)
"""What follows within a step, in this order; what is in files follows all tensors."""


def compare(a: Path, b: Path, tolerance: float | None = None) -> Comparison:
    """Compare all that two runs left: records, results, configurations and checkpoints.

    Args:
        tolerance: instead of the expected agreement of the two plans.

    Raises:
        ConfigError: a folder holds no run.
    """
    if tolerance is not None:
        reason = "it is the largest difference allowed"
        require(0 <= tolerance < math.inf, "tolerance", tolerance, reason, "tolerance=1e-10, or 0 for the same bits")
    left, right = RecordedRun(a), RecordedRun(b)
    comparison = compare_runs(left, right, tolerance)
    compare_files(comparison, left, right, (_end(left, right), math.inf))
    return comparison


def compare_runs(left: RecordedRun, right: RecordedRun, tolerance: float | None = None) -> Comparison:
    """Compare the records and results of two folders, without torch: no checkpoint is opened."""
    expected = tolerance_between(left.run_metadata, right.run_metadata) if tolerance is None else Tolerance(tolerance)
    comparison = Comparison(str(left.folder), str(right.folder), expected)
    _leave_out_missing(comparison, left, right)
    _compare_steps(comparison, left, right)
    compare_ranks(comparison, left, right, RANKS)
    _compare_validations(comparison, left, right)
    _compare_tensors(comparison, left, right)
    compare_leaves(comparison, left.leaves(), right.leaves(), (_end(left, right), RESULTS))
    if (first := comparison.first_divergence) is not None:
        comparison.likely = likely_reason(left.run_metadata, right.run_metadata, first.name)
    comparison.unfinished = bool(left.steps) and not left.tensors and not right.tensors
    if comparison.quantities.keys() <= {"configuration"}:
        nothing = f"it has nothing in common with {right.folder} to compare"
        raise ConfigError(f"{left.folder}: {nothing}; write the folders of two trained runs.")
    return comparison


def _leave_out_missing(comparison: Comparison, left: RecordedRun, right: RecordedRun) -> None:
    """Leave out the first steps where a record says that it lacks them."""
    if missing := max(left.missing_steps, right.missing_steps):
        comparison.leave_out("steps that a record lacks", f"record.jsonl:steps 1 to {missing}")
        last = _last_steps(left, right)
        for run in (left, right):
            run.steps = {at: line for at, line in run.steps.items() if at[1] > missing}
            run.fingerprints = {at: line for at, line in run.fingerprints.items() if at[1] > missing}
            steps = {at: line.get("after_step", last.get(at[0], math.inf)) for at, line in run.validations.items()}
            run.validations = {at: line for at, line in run.validations.items() if steps[at] > missing}


def _compare_steps(comparison: Comparison, left: RecordedRun, right: RecordedRun) -> None:
    for epoch, step in sorted(left.steps.keys() | right.steps.keys()):
        where = f"epoch {epoch}, step {step}"
        pair = left.steps.get((epoch, step)), right.steps.get((epoch, step))
        if None in pair:
            here, there = (MISSING if line is None else "there" for line in pair)
            comparison.of("steps").add(here, there, where, (step, -1))
            continue
        a, b = (_with_mean_loss(line) for line in pair if line is not None)
        keys = (*FIELDS, *sorted((a.keys() | b.keys()) - {"epoch", "step", "grad_norm_spread", *LOGGED, *FIELDS}))
        for order, key in enumerate(keys):
            name, at = f"record.jsonl:step.{key}", f"{where}, {key}"
            compare_values(comparison, name, a.get(key), b.get(key), at, (step, order))
        when = (step, len(FIELDS))
        for kind in LOGGED:
            one, other = a.get(kind, {}), b.get(kind, {})
            for name in sorted(one.keys() | other.keys()):
                pair = one.get(name, MISSING), other.get(name, MISSING)
                compare_values(comparison, f"record.jsonl:step.{kind}.{name}", *pair, f"{where}, {name}", when)
        for run, line in ((left, a), (right, b)):
            inside = f"{where}, grad_norm_spread in {run.folder}"
            comparison.of("ranks in step").add(line.get("grad_norm_spread"), 0.0, inside, when)


def _with_mean_loss(line: dict[str, Any]) -> dict[str, Any]:
    """Losses are compared as means, so that a difference does not grow with the batch."""
    if isinstance(line.get("loss_sum"), float) and line.get("samples"):
        return {**line, "loss_sum": line["loss_sum"] / line["samples"]}
    return line


def _compare_validations(comparison: Comparison, left: RecordedRun, right: RecordedRun) -> None:
    last = _last_steps(left, right)
    for at in sorted(left.validations.keys() | right.validations.keys()):
        a, b = (run.validations.get(at, {}) for run in (left, right))
        epoch, batch = at
        where = f"epoch {epoch}" if batch == math.inf else f"epoch {epoch}, batch {batch}"
        when = ({**a, **b}.get("after_step", last.get(epoch, math.inf)), VALIDATION)
        for key in sorted((a.keys() | b.keys()) - {"epoch", "after_step", "after_batch"}):
            name = f"record.jsonl:validation.{key}"
            compare_values(comparison, name, a.get(key), b.get(key), f"{where}, {key}", when)


def _last_steps(left: RecordedRun, right: RecordedRun) -> dict[int, int]:
    """Of each epoch the last optimizer step."""
    return dict(sorted(left.steps.keys() | right.steps.keys()))


def _end(left: RecordedRun, right: RecordedRun) -> float:
    """The last optimizer step."""
    return max((step for _epoch, step in (*left.steps, *right.steps)), default=0)


def _compare_tensors(comparison: Comparison, left: RecordedRun, right: RecordedRun) -> None:
    """By their digests; those that differ by their elements, if the last checkpoints hold what was recorded."""
    end = _end(left, right)
    for order, name in enumerate({**left.tensors, **right.tensors}):
        values: tuple[Any, Any] = left.tensors.get(name), right.tensors.get(name)
        if None not in values and values[0] != values[1]:
            pair = [run.weights[name] for run in (left, right) if name in run.weights]
            if tuple(digest({name: tensor}) for tensor in pair) == values:
                values = furthest(*pair)
        comparison.of(name, tensor=True).add(*values, "after the last epoch", (end, TENSORS + order))
