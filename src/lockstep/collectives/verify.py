"""What every rank held after each primitive, against what it must hold: a check for each rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lockstep.collectives.primitive import Numbers, Primitive
from lockstep.collectives.ranks import Observation, broken
from lockstep.collectives.timing import BYTES

TOLERANCE = 1e-6
"""Relative: float32 against float64; a mean may be a product with 1/W."""


@dataclass(frozen=True)
class Check:
    """A row of tour.csv; `result` is pass, fail, or – where there is nothing to check."""

    primitive: str
    rank: int
    before: str
    after: str
    result: str
    explanation: str


def check_all(
    primitives: Sequence[Primitive], found: Mapping[str, Sequence[Observation]], world: int, root: int, backend: str
) -> list[Check]:
    """All rows of the tour; the last of `found` may be a primitive that broke the group."""
    table: list[Check] = []
    for primitive in primitives:
        if primitive.min_ranks > world:
            table += not_tried(primitive.name, world, f"it needs {primitive.min_ranks} ranks, and there is one")
        elif primitive.name in found:
            table += check(primitive, found[primitive.name], root, backend)
        else:
            table += not_tried(primitive.name, world, f"not tried: {list(found)[-1]} had broken the group")
    return table


def not_tried(name: str, world: int, why: str) -> list[Check]:
    return [Check(name, rank, "–", "–", "–", why) for rank in range(world)]


def check(primitive: Primitive, ranks: Sequence[Observation], root: int, backend: str) -> list[Check]:
    """An error on all ranks means that the backend can't do it; an error on some is a failure of all."""
    explanation = primitive.explain(BYTES * primitive.count(len(ranks)), len(ranks))
    errors = {rank: " ".join(one.error.split()) for rank, one in enumerate(ranks) if one.error}
    if broken(ranks):
        results = ["fail"] * len(ranks)
        explanation = "; ".join(f"rank {rank}: {error}" for rank, error in errors.items())
    elif errors:
        results, explanation = ["–"] * len(ranks), f"{backend}: {errors[0]}"
    else:
        expected = primitive.expected([one.before for one in ranks], root)
        results = [compare(one.after, own) for one, own in zip(ranks, expected, strict=True)]
    return [
        Check(primitive.name, rank, text_of(one.before), text_of(one.after), result, explanation)
        for rank, (one, result) in enumerate(zip(ranks, results, strict=True))
    ]


def compare(after: Sequence[float], expected: Numbers | None) -> str:
    """– for a rank that may hold anything."""
    if expected is None:
        return "–"
    same = len(after) == len(expected) and np.allclose(after, expected, rtol=TOLERANCE, atol=0)
    return "pass" if same else "fail"


def text_of(numbers: Sequence[float]) -> str:
    """10 -11 2.5: short, and enough to tell ranks apart."""
    return " ".join(f"{number:g}" for number in numbers) or "–"
