"""Where two runs differ: every quantity of their records, step by step, and everything else that they left."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.compare.comparison import Comparison, When
from lockstep.compare.record_lines import RESULTS, Runs, compare_records, end_of
from lockstep.compare.recorded_run import LAST, RecordedRun, flattened
from lockstep.compare.tolerance import Tolerance, likely_reason, tolerance_between
from lockstep.compare.values import compare_all
from lockstep.config_error import ConfigError, require

__all__ = ["Comparison", "RecordedRun", "compare", "compare_runs"]

KEPT = ("best.ckpt", "previous.ckpt", f"{LAST}:lockstep.best")
"""What depends on the metric that is monitored and on how often a run saves."""


def compare(a: Path, b: Path, tolerance: float | None = None) -> Comparison:
    """Compare all that two runs left: records, results, configurations and checkpoints.

    Args:
        tolerance: replaces the expected agreement of the two plans.

    Raises:
        ConfigError: a folder holds no run.
    """
    if tolerance is not None:
        reason = "it is the largest difference allowed"
        require(0 <= tolerance < math.inf, "tolerance", tolerance, reason, "tolerance=1e-10, or 0 for the same bits")
    runs = RecordedRun(a), RecordedRun(b)
    comparison = compare_runs(*runs, tolerance)
    _compare_files(comparison, runs, (end_of(runs), math.inf))
    return comparison


def compare_runs(left: RecordedRun, right: RecordedRun, tolerance: float | None = None) -> Comparison:
    """Compare the records and results of two runs; checkpoints are read only to show how far tensors differ."""
    metadata = left.run_metadata, right.run_metadata
    expected = tolerance_between(*metadata) if tolerance is None else Tolerance(tolerance)
    comparison = Comparison(str(left.folder), str(right.folder), expected)
    runs = left, right
    compare_records(comparison, runs)
    compare_all(comparison, left.values(), right.values(), (end_of(runs), RESULTS))
    if (first := comparison.first_divergence) is not None:
        comparison.likely = likely_reason(*metadata, first.name)
    comparison.unfinished = bool(left.steps) and not any(run.lines["tensor"] for run in runs)
    if comparison.quantities.keys() <= {"configuration"}:
        reason = f"it has nothing in common with {right.folder} to compare"
        raise ConfigError(f"{left.folder}: {reason}; write the folders of two trained runs.")
    return comparison


def _compare_files(comparison: Comparison, runs: Runs, when: When) -> None:
    """Compare which files there are, and the contents of checkpoints of equal positions.

    Each checkpoint is read once.
    """
    left, right = runs
    a, b = (
        {**run.files(), **_checkpoint_values(comparison, run, other)} for run, other in ((left, right), (right, left))
    )
    if _saving(left) != _saving(right):
        for side in (a, b):
            for key in [key for key in side if key.startswith(KEPT)]:
                comparison.leave_out("a best or previous checkpoint that may be of other epochs", key)
                del side[key]
    compare_all(comparison, a, b, when)


def _checkpoint_values(comparison: Comparison, run: RecordedRun, other: RecordedRun) -> dict[str, Any]:
    """Return the values in the checkpoints that both runs have, and why one cannot be read."""
    values: dict[str, Any] = {}
    for name, checkpoint in run.checkpoints.items():
        partner = other.checkpoints.get(name)
        if isinstance(checkpoint, str):
            values[f"{name}:"] = f"{checkpoint} ({run.folder})"
        elif isinstance(partner, Mapping):
            content = checkpoint
            if name != LAST and _position(checkpoint) != _position(partner):
                comparison.leave_out("what a best or previous checkpoint of another position holds", f"{name}:*")
                content = {"lockstep": {"position": _position(checkpoint)}}
            values |= {f"{name}:{key}": value for key, value in flattened(content)}
    return values


def _position(checkpoint: Mapping[str, Any]) -> Mapping[str, int]:
    position: Mapping[str, int] = checkpoint.get("lockstep", {}).get("position", {})
    return position


def _saving(run: RecordedRun) -> object:
    """Return which checkpoints a run keeps; a run that began from another's checkpoint has only its own epochs."""
    config = run.config
    options = config.get("checkpoint", {})
    elsewhere = config.get("ckpt_path") if not config.get("resume") else None
    return options.get("monitor"), options.get("every_n_steps"), elsewhere
