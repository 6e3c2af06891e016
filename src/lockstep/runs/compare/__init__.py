"""Where two runs differ: every quantity of their records, step by step, and everything else that they left."""

import math
from collections.abc import Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from lockstep.base.config_error import ConfigError, as_typed, errors_as, require
from lockstep.plan.schemas.groups import leaves
from lockstep.runs.compare.comparison import Comparison
from lockstep.runs.compare.comparison_rules import CONFIGURATION, EXPECTED, ONE_RUN, rule_of
from lockstep.runs.compare.recorded_run import RecordedRun, compare_within, damaged, record_values
from lockstep.runs.compare.tolerance import Tolerance, likely_reason, tolerance_between
from lockstep.runs.run_files import CONFIG

__all__ = ["Comparison", "RecordedRun", "compare", "compare_runs"]

GIVEN = "the tolerance that was given"
NONE = "–"  # shown for the option that a run does not have
SQUARED = ("exp_avg_sq", "square_avg")  # mean squared gradients, by whose root Adam and its like, and RMSprop divide
ROUNDING = {"64-true": (1e-12, 1e-10), "32-true": (1e-5, 5e-3)}
"""By precision: the largest gradient that may be rounding noise, and the agreement of all squared gradients if nothing
but noise differs; both relative to the largest. 16-bit gradients show neither."""
UNRELATED = 0.1  # relative difference of the squares of one element: rounding noise is drawn anew in each run


def compare(a: Path, b: Path, tolerance: float | None = None) -> Comparison:
    """Compare all that two runs left; `tolerance` replaces the expected agreement. Damaged files are a ConfigError."""
    if tolerance is not None:
        reason = "it is the largest difference allowed"
        require(0 <= tolerance < math.inf, "tolerance", tolerance, reason, "tolerance=1e-10, or 0 for the same bits")
    runs = RecordedRun(a), RecordedRun(b)
    try:
        return compare_runs(*runs, tolerance, with_files=True)
    except ConfigError:
        raise
    except Exception:
        for run in runs:
            with errors_as(partial(damaged, run.folder)):
                compare_runs(run, run, with_files=True)
        raise


def compare_runs(
    left: RecordedRun, right: RecordedRun, tolerance: float | None = None, with_files: bool = False
) -> Comparison:
    """Compare the records, results and configurations of two runs; `with_files`: the checkpoints and all files too."""
    a, b = left.run_metadata, right.run_metadata
    expected = tolerance_between(a, b) if tolerance is None else Tolerance(tolerance, reason=GIVEN)
    options, engines = differing_options(left.config, right.config), (str(a.get("engine")), str(b.get("engine")))
    comparison = Comparison(str(left.folder), str(right.folder), expected, options, engines)
    comparison.add_all(record_values(left, right), record_values(right, left))
    for run in (left, right):
        compare_within(comparison, run)
    comparison.add_all(left.values(), right.values())
    comparison.unfinished = bool(left.steps) and not (left.lines["tensor"] or right.lines["tensor"])
    if comparison.quantities.keys() <= {CONFIGURATION, ONE_RUN}:
        reason = f"it has nothing in common with {right.folder} to compare"
        raise ConfigError(f"{left.folder}: {reason}; write the folders of two trained runs.")
    if with_files:
        comparison.add_all(left.files(right), right.files(left))
        if (first := comparison.first_divergence) is not None:
            noise = noise_reason(left, right) if first.tolerance.within else None
            comparison.likely = noise or likely_reason(a, b, first.name)
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


def noise_reason(a: RecordedRun, b: RecordedRun) -> str | None:
    """Return the reason that gradients are zero but for rounding, and scaled up, if the last checkpoints show that.

    The loss does not depend on a parameter whose gradient is zero, such as the weights of a constant input in front of
    BatchNorm: however far these drift, all other gradients agree.
    """
    import torch

    precisions = {run.run_metadata["precision"] for run in (a, b)}
    left, right = _squared_gradients(a.last), _squared_gradients(b.last)
    shapes, others = ({key: squares.shape for key, squares in run.items()} for run in (left, right))
    if not shapes or shapes != others or not precisions <= ROUNDING.keys():
        return None
    noise, agreement = max(ROUNDING[precision] for precision in precisions)
    one, other = (torch.cat([run[key].flatten() for key in shapes]) for run in (left, right))
    distance, either = (one - other).abs(), one.maximum(other)
    is_noise = (either > 0) & (either < noise**2 * either.max())
    if distance.max() > agreement * either.max() or not (distance > UNRELATED * either)[is_noise].any():
        return None
    return (
        f"The gradients of both agree. Those of {int(is_noise.sum())} elements are zero except for rounding noise "
        f"(below {noise:g} of the largest), which the optimizer scales up. They are of a bias, or the weights of a "
        "constant input, in front of BatchNorm."
    )


def _squared_gradients(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mean squared gradients that the optimizers keep, by key."""
    return {
        key: value.double()
        for key, value in leaves(checkpoint)
        if key.startswith("optimizer_states.") and key.endswith(SQUARED) and hasattr(value, "numel") and value.numel()
    }
