"""The differences of two runs: every quantity of their records, step by step, and everything else that they left."""

import math
import os
from collections.abc import Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from lockstep.base.config_error import as_typed, errors_as, require
from lockstep.plan.schemas.groups import leaves
from lockstep.runs.compare.comparison import Comparison
from lockstep.runs.compare.comparison_rules import CONFIGURATION, EXPECTED, ONE_RUN, rule_of
from lockstep.runs.compare.recorded_run import RecordedRun, compare_within, damaged, record_values
from lockstep.runs.compare.tolerance import Tolerance, likely_reason, tolerance_between
from lockstep.runs.run_files import CONFIG

__all__ = ["Comparison", "RecordedRun", "compare"]

GIVEN = "the tolerance that was given"
NONE = "–"  # shown for the option that a run does not have


def compare(a: str | os.PathLike[str], b: str | os.PathLike[str], tolerance: float | None = None) -> Comparison:
    """Compare all that two runs left; `tolerance` replaces the expected agreement. Damaged files are a ConfigError."""
    a, b = Path(a), Path(b)
    if tolerance is not None:
        reason = "it is the largest difference allowed"
        require(0 <= tolerance < math.inf, "tolerance", tolerance, reason, "tolerance=1e-10, or 0 for the same bits")
    left, right = RecordedRun(a), RecordedRun(b)
    with errors_as(partial(damaged, f"{a} or {b}")):
        metadata = left.run_metadata, right.run_metadata
        expected = tolerance_between(*metadata) if tolerance is None else Tolerance(tolerance, reason=GIVEN)
        options, (one, other) = differing_options(left.config, right.config), (run.get("engine") for run in metadata)
        comparison = Comparison(str(a), str(b), expected, options, (str(one), str(other)))
        comparison.add_all(record_values(left, right), record_values(right, left))
        for run in (left, right):
            compare_within(comparison, run)
        comparison.add_all(left.values(), right.values())
        in_common = comparison.quantities.keys() - {CONFIGURATION, ONE_RUN}
        reason, hint = f"it has nothing in common with {b}", "the folders of two trained runs"
        require(bool(in_common), "run", a, reason, hint)
        comparison.add_all(left.files(right), right.files(left))
        if (first := comparison.first_divergence) is not None:
            comparison.likely = likely_reason(*metadata, first.name)
            commits = [run.results.get("commit") for run in (left, right)]
            if comparison.likely is None and not options and None not in commits and commits[0] != commits[1]:
                comparison.likely = "They ran the code of commits {} and {}.".format(*commits)
        return comparison


def differing_options(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the options that differ and decide what is computed, or in which world.

    Options that only one of them has are left out if they follow from another target, or choice of a group.
    """
    left, right = ({key: as_typed(value) for key, value in leaves(config, of_lists=False)} for config in (a, b))
    options = {}
    for key in {**left, **right}:
        shown, choices = (left.get(key, NONE), right.get(key, NONE)), accumulate(key.split("."), "{}.{}".format)
        follows = NONE in shown and any(left.get(choice) != right.get(choice) for choice in choices if choice != key)
        if shown[0] != shown[1] and not follows and rule_of(f"{CONFIG}:{key}").quantity in (CONFIGURATION, EXPECTED):
            options[key] = shown
    return options
