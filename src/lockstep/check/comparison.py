"""Compare traces of trainings, plain values by step: where each quantity differs first, beyond a measured tolerance.

All that the command and the ranks have in common is here, without torch: what a check trains, and what it gets of that.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.plan.world import World

Sketches = dict[str, list[float]]
"""The norm and projections of each tensor, and of its sorted rows, by its name: they differ if the tensors do."""
Trace = dict[str, Any]
"""What a rank has computed. steps: a mapping for each optimizer step. end: the state afterwards. validations, again:
those of training, and those of the trained module. facts: of the module and its loader."""
Results = dict[str, list[Trace]]
"""The traces of all ranks by training; one with an `error` in place of steps has failed."""
Tolerance = Callable[[str, int], float]
"""Return how much a quantity may differ until a step: infinitely from where it is not compared."""

STATE = ("parameters", "optimizer", "buffers")
ORDER = ("batch", "samples", *STATE, "loss", "gradient", "applied", "rate")
"""Quantities in the order in which they differ within a step; a state is that before it."""
FACTOR, FLOOR, LIMIT = 100.0, 1000.0, 1e-3
"""Of the tolerance: times the measured difference; at least, in units of the last place; where it passes the limit,
nothing is compared any more."""
DATASET, COUNT = "dataset.", "(a count)"
"""What the names of a dataset's generators begin with, and those of whole numbers, which may depend on the rank, end
with."""
EPSILON = {"64-true": 2.0**-52, "32-true": 2.0**-23}
VAL_BATCHES, BUDGET = 10, 6.0
"""Of each validation; CPU seconds of a training's steps, about a twentieth of a check."""


@dataclass(frozen=True)
class Subject:
    """What is trained: calls of the module and the data, the global batch size, and the batches of each epoch.

    budget: CPU seconds that the steps of one training may take. world: of the ranks that are started with it.
    """

    model: dict[str, Any]
    data: dict[str, Any]
    batch_size: int
    batches: int = 10
    seed: int = 0
    precision: str = "64-true"
    sync_batchnorm: bool = False
    budget: float = BUDGET
    world: World | None = None


@dataclass(frozen=True)
class Gap:
    """Where a quantity differs first: the step, the names of its tensors that do, the largest relative difference.

    tolerance: that of the step.
    """

    quantity: str
    step: int
    names: tuple[str, ...]
    difference: float
    tolerance: float


@dataclass(frozen=True)
class Comparison:
    """where quantities differ first, by name, the largest difference, and that of the steps that are not compared."""

    gaps: dict[str, Gap]
    largest: float
    skipped: float = 0.0

    @property
    def first(self) -> Gap | None:
        return first_of(self.gaps.values())


def first_of(gaps: Iterable[Gap]) -> Gap | None:
    """Return the earliest of several gaps."""
    return min(gaps, key=lambda gap: (gap.step, ORDER.index(gap.quantity)), default=None)


def relative(one: float, other: float, scale: float = 0.0) -> float:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    distance = abs(one - other) / max(abs(one), abs(other), scale, 1e-300)
    return distance if math.isfinite(distance) else math.inf


def distances(one: Any, other: Any, in_order: bool = True) -> dict[str, float]:
    """Return the difference of each tensor, relative to the largest norm among them; of numbers that of each.

    in_order: whether rows of a tensor in another order are a difference.
    """
    if not isinstance(one, dict):
        one, other = (value if isinstance(value, list) else [value] for value in (one, other))
        if any(isinstance(value, str) for value in one) or len(one) != len(other):
            return {"": 0.0 if sorted(one) == sorted(other) else math.inf}
        return {"": max(map(relative, one, other), default=0.0)}
    norms = [values[0] for each in (one, other) for values in each.values()]
    scale, every = max(filter(math.isfinite, norms), default=0.0), 1 if in_order else 2
    return {
        name: max(relative(a, b, scale) for a, b in zip(one[name][::every], other[name][::every], strict=True))
        if name in one and name in other
        else math.inf
        for name in {**one, **other}
    }


def differences(one: Trace, other: Trace, quantity: str, in_order: bool = True) -> Iterator[dict[str, float]]:
    """Yield the differences of a quantity at each step, and after the last; infinite where one trace has ended."""
    for a, b in zip([*one["steps"], one["end"]], [*other["steps"], other["end"]], strict=False):
        has_both = quantity in a and quantity in b
        yield distances(a[quantity], b[quantity], in_order or quantity != "buffers") if has_both else {}
    if len(one["steps"]) != len(other["steps"]):
        yield {"": math.inf}


def compare(
    pairs: Iterable[tuple[Trace, Trace]], tolerance: Tolerance, quantities: Sequence[str] = ORDER, in_order: bool = True
) -> Comparison:
    """Compare pairs of traces; a quantity differs where it first does in any pair. in_order: of the rows of buffers."""
    gaps, largest, skipped = dict[str, Gap](), 0.0, 0.0
    for (one, other), quantity in ((pair, quantity) for pair in pairs for quantity in quantities):
        for step, values in enumerate(differences(one, other, quantity, in_order)):
            limit, difference = tolerance(quantity, step), max(values.values(), default=0.0)
            if limit == math.inf:
                skipped = max(skipped, difference)
            else:
                largest = max(largest, difference)
            names = tuple(name for name, value in values.items() if value > limit)
            if names and (quantity not in gaps or step < gaps[quantity].step):
                gaps[quantity] = Gap(quantity, step, names, difference, limit)
    return Comparison(gaps, largest, skipped)


def measured(straight: Trace, moved: Trace, precision: str) -> Tolerance:
    """Return the tolerance: a multiple of what inputs moved by one unit in the last place have made until a step."""
    floor, until = FLOOR * EPSILON[precision], dict[str, list[float]]()
    for quantity in ORDER:
        largest, until[quantity] = 0.0, []
        for values in differences(straight, moved, quantity):
            largest = max(largest, *filter(math.isfinite, values.values()), 0.0)
            until[quantity].append(largest)

    def tolerance(quantity: str, step: int) -> float:
        values = until[quantity] or [0.0]
        expected = max(floor, FACTOR * values[min(step, len(values) - 1)])
        return expected if expected <= LIMIT else math.inf

    return tolerance


def first_layer(alone: Any, ranks: Sequence[Any], close: float) -> tuple[str, str]:
    """Return the first submodule that differs at a step, with the phase in words, and itself if it mixes samples.

    Its outputs differ, or its inputs already, or else the gradient of its outputs. It mixes the samples of a batch if
    its outputs depend on the division of a batch, and its inputs do not.
    """
    names = [*alone["outputs"]]
    for name in names:
        inputs, outputs = (_is_apart(alone, ranks, phase, name, close) for phase in ("inputs", "outputs"))
        if inputs or outputs:
            return (f"inputs of {name}", "") if inputs else (f"{name}, forward", name)
    backward = (name for name in reversed(names) if _is_apart(alone, ranks, "backward", name, close))
    return next((f"{name}, backward" for name in backward), ""), ""


def _is_apart(alone: Any, ranks: Sequence[Any], phase: str, name: str, close: float) -> bool:
    """Whether sums over samples, and sums of squares, are others over all ranks: the mean is taken of gradients."""
    shared = [rank[phase].get(name) for rank in ranks]
    if name not in alone[phase] or any(each is None or each[0] != alone[phase][name][0] for each in shared):
        return False  # padded otherwise
    single: list[float] = alone[phase][name][1:]
    factor = 1 / len(ranks) if phase == "backward" else 1.0
    total, squares = (float(sum(each[power] for each in shared)) * factor**power for power in (1, 2))
    scale = math.sqrt(max(single[1], squares))
    return abs(total - single[0]) > close * scale or abs(squares - single[1]) > close * scale**2
