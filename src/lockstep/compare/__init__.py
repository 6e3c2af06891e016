"""Where two runs differ: every quantity of their records, step by step, and everything else that they left."""

import math
from pathlib import Path

from lockstep.compare.comparison import Comparison
from lockstep.compare.record_lines import RESULTS, compare_records, end_of
from lockstep.compare.recorded_run import RecordedRun
from lockstep.compare.tolerance import Tolerance, likely_reason, tolerance_between
from lockstep.compare.values import compare_all
from lockstep.config_error import ConfigError, require

__all__ = ["Comparison", "RecordedRun", "compare", "compare_runs"]


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
    with_content = all(run.last for run in runs)
    left, right = (run.files(with_content) for run in runs)
    compare_all(comparison, left, right, (end_of(runs), math.inf))
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
