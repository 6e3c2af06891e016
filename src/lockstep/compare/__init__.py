"""Where two runs differ: every quantity of their records, step by step, and everything else that they left."""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lockstep.compare.comparison import Comparison, Values
from lockstep.compare.comparison_rules import CONFIGURATION
from lockstep.compare.noise import noise_reason
from lockstep.compare.options import differing_options
from lockstep.compare.quantity import When
from lockstep.compare.record_lines import RESULTS, compare_ranks, record_values
from lockstep.compare.recorded_run import RecordedRun, damaged
from lockstep.compare.tolerance import Tolerance, likely_reason, reason_of, tolerance_between
from lockstep.config_error import ConfigError, errors_as, require

__all__ = ["Comparison", "RecordedRun", "compare", "compare_runs"]


def compare(a: Path, b: Path, tolerance: float | None = None) -> Comparison:
    """Compare all that two runs left; `tolerance` replaces the expected agreement of the two plans.

    Raises:
        ConfigError: a folder holds no run, or damaged files: it cannot even be compared with itself.
    """
    if tolerance is not None:
        reason = "it is the largest difference allowed"
        require(0 <= tolerance < math.inf, "tolerance", tolerance, reason, "tolerance=1e-10, or 0 for the same bits")
    runs = RecordedRun(a), RecordedRun(b)
    try:
        return _compare_folders(*runs, tolerance)
    except ConfigError:
        raise
    except Exception:
        for run in runs:
            with errors_as(partial(damaged, run.folder)):
                _compare_folders(run, run, None)
        raise


def _compare_folders(left: RecordedRun, right: RecordedRun, tolerance: float | None) -> Comparison:
    comparison = compare_runs(left, right, tolerance)
    with_content = bool(left.last and right.last)
    comparison.add_all(*(_placed(run.files(with_content), (run.end, math.inf)) for run in (left, right)))
    first = comparison.first_divergence
    if first is not None and first.tolerance.within:
        comparison.likely = noise_reason(left.last, right.last) or comparison.likely
    return comparison


def compare_runs(left: RecordedRun, right: RecordedRun, tolerance: float | None = None) -> Comparison:
    """Compare the records, results and configurations of two runs."""
    metadata = left.run_metadata, right.run_metadata
    expected = tolerance_between(*metadata) if tolerance is None else Tolerance(tolerance)
    reason = reason_of(*metadata) if tolerance is None else "the tolerance that was given"
    options = differing_options(left.config, right.config)
    comparison = Comparison(str(left.folder), str(right.folder), expected, reason, options)
    comparison.add_all(record_values(left, right), record_values(right, left))
    for run in (left, right):
        compare_ranks(comparison, run)
    comparison.add_all(*(_placed(run.values(), (run.end, RESULTS)) for run in (left, right)))
    if (first := comparison.first_divergence) is not None:
        comparison.likely = likely_reason(*metadata, first.name)
    comparison.unfinished = bool(left.steps) and not (left.lines["tensor"] or right.lines["tensor"])
    if comparison.quantities.keys() <= {CONFIGURATION}:
        hint = "the folders of two trained runs"
        raise ConfigError(f"{left.folder}: it has nothing in common with {right.folder} to compare; write {hint}.")
    return comparison


def _placed(values: Mapping[str, Any], when: When) -> Values:
    """Return the values of files, which have no place beside their keys."""
    return {(key, key.removesuffix(":").replace(":", ", ", 1)): (value, when) for key, value in values.items()}
