"""The records of two runs, compared line by line: steps, fingerprints of each rank, validations, tensors."""

import math
from itertools import zip_longest
from typing import Any

from lockstep.compare.comparison import Comparison
from lockstep.compare.recorded_run import Line, RecordedRun, flattened
from lockstep.compare.values import MISSING, compare_values, furthest
from lockstep.record.digest import digest
from lockstep.run_files import FINGERPRINTED, RECORD

FIELDS = ("samples", "ids", "lr", "loss_sum", "grad_norm")
"""The fields of a step, a cause before its effects."""
LOGGED, FINGERPRINTS, VALIDATION, RESULTS, TENSORS = range(len(FIELDS), len(FIELDS) + 5)
"""The order of what follows within a step."""

Runs = tuple[RecordedRun, RecordedRun]


def compare_records(comparison: Comparison, runs: Runs) -> None:
    """Compare all lines of two records but the first."""
    _compare_steps(comparison, runs)
    _compare_fingerprints(comparison, runs)
    _compare_validations(comparison, runs)
    _compare_tensors(comparison, runs)


def end_of(runs: Runs) -> float:
    """Return the number of the last optimizer step."""
    return max((step for run in runs for _epoch, step in run.steps), default=0)


def _compare_steps(comparison: Comparison, runs: Runs) -> None:
    for epoch, step in sorted({*runs[0].steps, *runs[1].steps}):
        where = f"epoch {epoch}, step {step}"
        a, b = (run.steps.get((epoch, step)) for run in runs)
        if a is None or b is None:
            left_state, right_state = (MISSING if line is None else "there" for line in (a, b))
            comparison.quantity("steps").add(left_state, right_state, where, (step, -1))
            continue
        left, right = _step_values(a), _step_values(b)
        names = *FIELDS, *sorted((left.keys() | right.keys()) - {*FIELDS})
        for order, name in enumerate(names):
            when = step, min(order, LOGGED)
            compare_values(
                comparison, f"{RECORD}:step.{name}", left.get(name), right.get(name), f"{where}, {name}", when
            )
        for run, line in zip(runs, (a, b), strict=True):
            spread_where = f"{where}, grad_norm_spread in {run.folder}"
            comparison.quantity("ranks in step").add(line.get("grad_norm_spread"), 0.0, spread_where, (step, LOGGED))


def _step_values(line: Line) -> dict[str, Any]:
    """Return the values of a step; its loss as a mean, so that a difference does not grow with the batch."""
    values = {key: value for key, value in flattened(line) if key not in ("epoch", "step", "grad_norm_spread")}
    if isinstance(line.get("loss_sum"), float) and line.get("samples"):
        values["loss_sum"] = line["loss_sum"] / line["samples"]
    return values


def _compare_fingerprints(comparison: Comparison, runs: Runs) -> None:
    """Compare those of the ranks of each run, and those of both runs if identical bits are expected."""
    for run in runs:
        for (epoch, step), line in sorted(run.lines["fingerprint"].items()):
            sharded, per_rank_buffers = line.get("sharded", False), run.run_metadata.get("per_rank_buffers", True)
            for kind in FINGERPRINTED:
                if not (per_rank_buffers if kind == "buffers" else sharded):
                    ranks = line.get(kind) or [MISSING]
                    odd = next((rank for rank, fingerprint in enumerate(ranks) if fingerprint != ranks[0]), 0)
                    where = f"epoch {epoch}, step {step}, {kind} of ranks 0 and {odd} in {run.folder}"
                    comparison.quantity("ranks in step").add(ranks[0], ranks[odd], where, (step, FINGERPRINTS))
    left, right = (run.lines["fingerprint"] for run in runs)
    epoch_ends = dict(sorted(runs[0].steps.keys() & runs[1].steps.keys())).items()
    for epoch, step in sorted((left.keys() & right.keys()) | ((left.keys() | right.keys()) & epoch_ends)):
        for kind in FINGERPRINTED:
            ranks = ((lines.get((epoch, step)) or {}).get(kind) or [MISSING] for lines in (left, right))
            pairs: list[tuple[str, str]] = [*zip_longest(*ranks, fillvalue=MISSING)]
            rank = next((rank for rank, (one, other) in enumerate(pairs) if one != other), 0)
            where = f"epoch {epoch}, step {step}, {kind} of rank {rank}"
            one, other = pairs[rank]
            compare_values(comparison, f"{RECORD}:fingerprint.{kind}", one, other, where, (step, FINGERPRINTS))


def _compare_validations(comparison: Comparison, runs: Runs) -> None:
    left, right = (run.lines["validation"] for run in runs)
    last_steps = dict(sorted({*runs[0].steps, *runs[1].steps}))
    for epoch, batch in sorted(left.keys() | right.keys()):
        a, b = (lines.get((epoch, batch), {}) for lines in (left, right))
        where = f"epoch {epoch}" if batch == math.inf else f"epoch {epoch}, batch {batch}"
        when = {**a, **b}.get("after_step", last_steps.get(epoch, math.inf)), VALIDATION
        for name in sorted((a.keys() | b.keys()) - {"epoch", "after_step", "after_batch"}):
            compare_values(
                comparison, f"{RECORD}:validation.{name}", a.get(name), b.get(name), f"{where}, {name}", when
            )


def _compare_tensors(comparison: Comparison, runs: Runs) -> None:
    """Compare digests; show the elements that differ if the last checkpoints hold the recorded weights."""
    end = end_of(runs)
    for order, name in enumerate({**runs[0].lines["tensor"], **runs[1].lines["tensor"]}):
        a, b = digests = [run.lines["tensor"].get(name, {}).get("digest") for run in runs]
        if a != b and all(name in run.weights for run in runs):
            tensors = [run.weights[name] for run in runs]
            if [digest({name: tensor}) for tensor in tensors] == digests:
                a, b = furthest(*tensors)
        comparison.quantity(name, tensor=True).add(a, b, "after the last epoch", (end, TENSORS + order))
