"""Where two traces part: the first step and the names of each quantity, beyond a measured tolerance."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from lockstep.check.sketches import Sketches, Trace

ORDER = ("batch", "samples", "parameters", "optimizer", "buffers", "loss", "gradient", "applied", "rate")
"""Quantities in the order in which they part within a step."""
FACTOR, FLOOR, LOGGED = 100.0, 1000.0, 2e-6
"""Of the tolerance: times the measured difference; at least, in units of the last place; of logged values (float32)."""
EPSILON = {"64-true": 2.0**-52, "32-true": 2.0**-23}
Tolerance = Callable[[str, int], float]


@dataclass(frozen=True)
class Part:
    """Where a quantity parts: the step, the names of its tensors that do, and the relative difference."""

    step: int
    names: tuple[str, ...]
    difference: float


Parted = dict[str, Part]


def relative(one: float, other: float, scale: float = 0.0) -> float:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    distance = abs(one - other) / max(abs(one), abs(other), scale, 1e-300)
    return distance if math.isfinite(distance) else math.inf


def distances(one: Any, other: Any, in_order: bool = True) -> dict[str, float]:
    """Return the difference of each part of two values, relative to the largest norm among them.

    in_order: whether rows of a tensor in another order are a difference.
    """
    if isinstance(one, dict):
        sketches: list[Sketches] = [one, other]
        scale = max((values[0] for each in sketches for values in each.values() if math.isfinite(values[0])), default=0)
        return {
            name: max(
                relative(a, b, scale) for a, b in [*zip(one[name], other[name], strict=True)][:: 1 + (not in_order)]
            )
            if name in one and name in other
            else math.inf
            for name in {**one, **other}
        }
    if isinstance(one, list) and one and isinstance(one[0], str):
        return {"": 0.0 if sorted(one) == sorted(other) else math.inf}
    pairs = zip(one, other, strict=True) if isinstance(one, list) and len(one) == len(other) else [(one, other)]
    return {"": max((relative(a, b) if not isinstance(a, list) else math.inf for a, b in pairs), default=0.0)}


def states(trace: Trace) -> list[dict[str, Any]]:
    """Return the steps of a trace, and the state after the last."""
    return [*trace["steps"], trace["end"]]


def differences(one: Trace, other: Trace, quantity: str, in_order: bool = True) -> list[dict[str, float]]:
    """Return the differences of a quantity at each step; infinite where one trace has ended."""
    pairs = [*zip(states(one), states(other), strict=False)]
    both = [quantity in a and quantity in b for a, b in pairs]
    steps = [
        distances(a[quantity], b[quantity], in_order) if has else {} for (a, b), has in zip(pairs, both, strict=True)
    ]
    return steps if len(one["steps"]) == len(other["steps"]) else [*steps, {"": math.inf}]


def measured(straight: Trace, moved: Trace, precision: str) -> Tolerance:
    """Return the tolerance of a quantity at a step: a multiple of what moved inputs have made until then."""
    until: dict[str, list[float]] = {}
    for quantity in ORDER:
        largest, until[quantity] = 0.0, []
        for step in differences(straight, moved, quantity):
            largest = max(largest, *(value for value in step.values() if math.isfinite(value)), 0.0)
            until[quantity].append(largest)
    floor = FLOOR * EPSILON[precision]

    def tolerance(quantity: str, step: int) -> float:
        values = until.get(quantity) or [0.0]
        return max(floor, FACTOR * values[min(step, len(values) - 1)])

    return tolerance


def apart(
    one: Trace, other: Trace, tolerance: Tolerance, quantities: Sequence[str] = ORDER, in_order: bool = True
) -> Parted:
    """Return where two traces part. in_order: of the rows of buffers."""
    parted = {}
    for quantity in quantities:
        for step, values in enumerate(differences(one, other, quantity, in_order or quantity != "buffers")):
            limit = tolerance(quantity, step)
            names = [name for name, value in values.items() if value > limit]
            if names:
                parted[quantity] = Part(step, tuple(names), max(values.values()))
                break
    return parted


def largest(one: Trace, other: Trace, quantities: Sequence[str] = ORDER, in_order: bool = True) -> float:
    """Return the largest difference of any quantity."""
    steps = chain.from_iterable(
        differences(one, other, quantity, in_order or quantity != "buffers") for quantity in quantities
    )
    return max((value for step in steps for value in step.values()), default=0.0)


def first(parted: Parted) -> str:
    """Return the quantity that parts first."""
    return min(parted, key=lambda name: (parted[name].step, ORDER.index(name)))


def together(ranks: Sequence[Trace]) -> Trace:
    """Return the trace of all ranks: their samples, the mean of their losses, and the rest of rank 0."""
    steps = [
        {
            **parts[0],
            "samples": [*chain(*(part["samples"] for part in parts))],
            "loss": sum(part["loss"] for part in parts) / len(parts),
        }
        for parts in zip(*(rank["steps"] for rank in ranks), strict=False)
    ]
    return {**ranks[0], "steps": steps}


def earliest(*places: Parted) -> Parted:
    """Return where each quantity parts first in any of several pairs."""
    merged: Parted = {}
    for name, part in chain.from_iterable(place.items() for place in places):
        if name not in merged or part.step < merged[name].step:
            merged[name] = part
    return merged


def after(trace: Trace, step: int) -> Trace:
    """Return the rest of a run after a step."""
    return {**trace, "steps": trace["steps"][step:]}
