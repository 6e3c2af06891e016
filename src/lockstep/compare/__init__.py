"""Where two runs differ: every quantity of their records, step by step, and everything else that they left."""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lockstep.compare.comparison import Comparison, Values
from lockstep.compare.comparison_rules import CONFIGURATION, EXPECTED, rule_of
from lockstep.compare.quantity import When
from lockstep.compare.recorded_run import RESULTS, RecordedRun, compare_ranks, damaged, leaves, record_values
from lockstep.compare.tolerance import Tolerance, likely_reason, reason_of, tolerance_between
from lockstep.config_error import ConfigError, as_typed, errors_as, require
from lockstep.run_files import CONFIG
from lockstep.schemas.groups import flatten
from lockstep.schemas.target import KEY

__all__ = ["Comparison", "RecordedRun", "compare", "compare_runs"]

NONE = "–"  # shown for the option that a run does not have
SQUARED = ("exp_avg_sq", "square_avg")
"""In the state of Adam and its relatives, and of RMSprop: the mean squared gradient, by whose root they divide."""
NOISE = 1e-12  # the largest gradient that is rounding noise of float64, relative to the largest gradient of the net
AGREEMENT = 1e-10
"""How closely the squared gradients agree, relative to the largest, if nothing else than noise differs."""


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


def differing_options(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the options that differ between two configurations and decide what is computed, or in which world.

    If a target differs, or the choice of a group, options that only one of them has follow from it, and are left out.
    """
    left, right = ({key: as_typed(value) for key, value in _typed(config)} for config in (a, b))
    options = {}
    groups = list(dict.fromkeys(key.partition(".")[0] for key in {**left, **right}))
    for key in sorted({**left, **right}, key=lambda key: (groups.index(key.partition(".")[0]), "." in key)):
        shown, parts = (left.get(key, NONE), right.get(key, NONE)), key.split(".")
        choices = [".".join(parts[:length]) for length in range(1, len(parts))]
        follows = NONE in shown and any(left.get(choice) != right.get(choice) for choice in choices)
        if shown[0] != shown[1] and not follows and rule_of(f"{CONFIG}:{key}").quantity in (CONFIGURATION, EXPECTED):
            options[key] = shown
    return options


def _typed(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield all options by the keys of the command line, those of each callback by its name."""
    groups: dict[str, Any] = {}
    for group, value in config.items():
        several = isinstance(value, list) and any(isinstance(item, Mapping) for item in value)
        groups |= {item.get("key", f"{group}.{item['name']}"): item for item in value} if several else {group: value}
    for key, value in flatten(groups).items():
        yield from _leaves(key.removesuffix(f".{KEY}"), value)


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}".removesuffix(f".{KEY}"), inner)
    else:
        yield key, value


def noise_reason(a: Mapping[str, Any], b: Mapping[str, Any]) -> str | None:
    """Return the reason that gradients are zero but for rounding, and scaled up, if the last checkpoints show that.

    The loss does not depend on a parameter whose gradient is zero, such as the weights of a constant input in front of
    BatchNorm: however far these drift, all other gradients agree.
    """
    left, right = _squared_gradients(a), _squared_gradients(b)
    shapes, others = ({key: squares.shape for key, squares in run.items()} for run in (left, right))
    if not shapes or shapes != others:
        return None
    largest = max(squares.max().item() for squares in (*left.values(), *right.values()))
    counts = []
    for key, squares in left.items():
        if (squares - right[key]).abs().max() > AGREEMENT * largest:
            return None
        either = squares.maximum(right[key])
        counts.append(int(((either > 0) & (either < NOISE**2 * largest)).sum()))
    if not any(counts):
        return None
    return (
        f"The gradients of both agree. Those of {sum(counts)} elements in {sum(map(bool, counts))} of {len(counts)} "
        f"parameters are zero except for rounding noise (below {NOISE:g} of the largest), which the optimizer scales "
        "up. They are of a bias, or the weights of a constant input, in front of BatchNorm."
    )


def _squared_gradients(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mean squared gradients that the optimizers keep, by key."""
    return {
        key: value.double()
        for key, value in leaves(checkpoint)
        if key.startswith("optimizer_states.") and key.endswith(SQUARED) and hasattr(value, "numel") and value.numel()
    }
