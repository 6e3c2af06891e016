"""The lines of a run's record as values to compare: steps, fingerprints of each rank, validations, tensors."""

import math
from typing import Any

from lockstep.compare.comparison import Comparison, Values
from lockstep.compare.quantity import When
from lockstep.compare.recorded_run import RecordedRun, leaves
from lockstep.run_files import FINGERPRINTED, RECORD

FIELDS = ("samples", "ids", "lr", "loss_sum", "grad_norm")  # the fields of a step, a cause before its effects
LOGGED, FINGERPRINTS, VALIDATION, RESULTS, TENSORS = range(len(FIELDS), len(FIELDS) + 5)
"""The order of what follows within a step."""


def record_values(run: RecordedRun, other: RecordedRun) -> Values:
    """Return the values of all lines but the first; a step that `other` does not have is a single value."""
    values: dict[tuple[str, str], tuple[Any, When]] = {}
    for (epoch, step), line in run.steps.items():
        place = f"epoch {epoch}, step {step}"
        values[f"{RECORD}:step.step", place] = "there", (step, -1)
        if (epoch, step) in other.steps:
            for name, value in leaves(line):
                order = FIELDS.index(name) if name in FIELDS else LOGGED
                if name == "loss_sum" and value is not None:
                    value /= line.get("samples") or 1  # a mean, so that a difference does not grow with the batch
                if name not in ("epoch", "step", "grad_norm_spread"):
                    values[f"{RECORD}:step.{name}", f"{place}, {name}"] = value, (step, order)
    last_steps: dict[int, float] = dict(run.steps.keys())
    for (epoch, step), line in run.lines["fingerprint"].items():
        is_shared_end = last_steps.get(epoch) == step and (epoch, step) in other.steps
        if is_shared_end or (epoch, step) in other.lines["fingerprint"]:
            for kind in FINGERPRINTED:
                for rank, fingerprint in enumerate(line.get(kind, [])):
                    place = f"epoch {epoch}, step {step}, {kind} of rank {rank}"
                    values[f"{RECORD}:fingerprint.{kind}", place] = fingerprint, (step, FINGERPRINTS)
    for (epoch, batch), line in run.lines["validation"].items():
        place = f"epoch {epoch}" if batch == math.inf else f"epoch {epoch}, batch {batch}"
        step = line.get("after_step") or last_steps.get(epoch, math.inf)
        for name in sorted(line.keys() - {"epoch", "after_step", "after_batch"}):
            values[f"{RECORD}:validation.{name}", f"{place}, {name}"] = line[name], (step, VALIDATION)
    for name, line in run.lines["tensor"].items():
        values[f"{RECORD}:tensor.{name}", f"after the last epoch, {name}"] = line.get("digest"), (run.end, TENSORS)
    return values


def compare_ranks(comparison: Comparison, run: RecordedRun) -> None:
    """Compare the gradient norms and fingerprints of the ranks of one run."""
    for (epoch, step), line in run.steps.items():
        place = f"epoch {epoch}, step {step}, grad_norm_spread in {run.folder}"
        comparison.add(f"{RECORD}:step.grad_norm_spread", line.get("grad_norm_spread"), 0.0, place, (step, LOGGED))
    for (epoch, step), line in run.lines["fingerprint"].items():
        for kind in FINGERPRINTED:
            if run.run_metadata.get("per_rank_buffers", True) if kind == "buffers" else line.get("sharded"):
                continue
            for rank, fingerprint in enumerate(line.get(kind, [])):
                place = f"epoch {epoch}, step {step}, {kind} of ranks 0 and {rank} in {run.folder}"
                comparison.add(f"{RECORD}:ranks.{kind}", line[kind][0], fingerprint, place, (step, FINGERPRINTS))
