"""Where two runs differ: every quantity of their records, step by step, and everything else that they left."""

import math
from collections.abc import Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from lockstep.base.config_error import ConfigError, as_typed, errors_as, require
from lockstep.runs.compare.comparison import Comparison
from lockstep.runs.compare.comparison_rules import CONFIGURATION, EXPECTED, rule_of
from lockstep.runs.compare.recorded_run import RecordedRun, compare_ranks, damaged, leaves, record_values
from lockstep.runs.compare.tolerance import Tolerance, likely_reason, tolerance_between
from lockstep.runs.run_files import CONFIG

__all__ = ["Comparison", "RecordedRun", "compare", "compare_runs"]

NONE = "–"  # shown for the option that a run does not have
SQUARED = ("exp_avg_sq", "square_avg")  # mean squared gradients, by whose root Adam and its like, and RMSprop divide
ROUNDING = {"64-true": (1e-12, 1e-10), "32-true": (1e-5, 5e-3)}
"""By precision: the largest gradient that may be rounding noise, and the agreement of all squared gradients if nothing
but noise differs; both relative to the largest. 16-bit gradients show neither."""
UNRELATED = 0.1  # relative difference of the squares of one element: rounding noise is drawn anew in each run


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
    metadata = left.run_metadata, right.run_metadata
    given = Tolerance(tolerance or 0.0, reason="the tolerance that was given")
    expected = tolerance_between(*metadata) if tolerance is None else given
    options = differing_options(left.config, right.config)
    engines = str(metadata[0].get("engine")), str(metadata[1].get("engine"))
    comparison = Comparison(str(left.folder), str(right.folder), expected, options, engines)
    comparison.add_all(record_values(left, right), record_values(right, left))
    for run in (left, right):
        compare_ranks(comparison, run)
    comparison.add_all(left.values(), right.values())
    comparison.unfinished = bool(left.steps) and not (left.lines["tensor"] or right.lines["tensor"])
    if comparison.quantities.keys() <= {CONFIGURATION}:
        hint = "the folders of two trained runs"
        raise ConfigError(f"{left.folder}: it has nothing in common with {right.folder} to compare; write {hint}.")
    if with_files:
        with_content = bool(left.last and right.last)
        comparison.add_all(left.files(with_content), right.files(with_content))
    first = comparison.first_divergence
    if with_files and first is not None:
        noise = noise_reason(left, right) if first.tolerance.within else None
        comparison.likely = noise or likely_reason(*metadata, first.name)
    return comparison


def differing_options(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the options that differ between two configurations and decide what is computed, or in which world.

    If a target differs, or the choice of a group, options that only one of them has follow from it, and are left out.
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
    precisions = {run.run_metadata["precision"] for run in (a, b)}
    left, right = _squared_gradients(a.last), _squared_gradients(b.last)
    shapes, others = ({key: squares.shape for key, squares in run.items()} for run in (left, right))
    if not shapes or shapes != others or not precisions <= ROUNDING.keys():
        return None
    noise, agreement = max(ROUNDING[precision] for precision in precisions)
    largest = max(squares.max().item() for squares in (*left.values(), *right.values()))
    counts, unrelated = [], False
    for key, squares in left.items():
        distance, either = (squares - right[key]).abs(), squares.maximum(right[key])
        if distance.max() > agreement * largest:
            return None
        is_noise = (either > 0) & (either < noise**2 * largest)
        unrelated |= bool((distance > UNRELATED * either)[is_noise].any())
        counts.append(int(is_noise.sum()))
    if not unrelated:
        return None
    return (
        f"The gradients of both agree. Those of {sum(counts)} elements in {sum(map(bool, counts))} of {len(counts)} "
        f"parameters are zero except for rounding noise (below {noise:g} of the largest), which the optimizer scales "
        "up. They are of a bias, or the weights of a constant input, in front of BatchNorm."
    )


def _squared_gradients(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mean squared gradients that the optimizers keep, by key."""
    return {
        key: value.double()
        for key, value in leaves(checkpoint)
        if key.startswith("optimizer_states.") and key.endswith(SQUARED) and hasattr(value, "numel") and value.numel()
    }
