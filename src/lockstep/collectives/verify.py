"""Check what every rank held after each primitive, and format the results."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from lockstep.collectives.primitives import Numbers, Primitive
from lockstep.collectives.ranks import Observation, is_broken
from lockstep.collectives.timing import BYTES
from lockstep.text_table import columns_text

TOLERANCE = 1e-6
"""Relative: float32 against float64; a mean may be a product with 1/W."""


@dataclass(frozen=True)
class Check:
    """A row of tour.csv; `result` is pass, fail, or – if there is nothing to check."""

    primitive: str
    rank: int
    before: str
    after: str
    result: str
    explanation: str


def check_all(
    primitives: Sequence[Primitive],
    observations: Mapping[str, Sequence[Observation]],
    world: int,
    root: int,
    backend: str,
) -> list[Check]:
    """Return all rows of the tour; primitives without observations were not tried."""
    table: list[Check] = []
    for primitive in primitives:
        if primitive.name in observations:
            table += check(primitive, observations[primitive.name], root, backend)
            continue
        reason = f"not tried: {list(observations)[-1]} had broken the group"
        if primitive.min_ranks > world:
            reason = f"it needs {primitive.min_ranks} ranks, and there is one"
        table += [Check(primitive.name, rank, "–", "–", "–", reason) for rank in range(world)]
    return table


def check(primitive: Primitive, ranks: Sequence[Observation], root: int, backend: str) -> list[Check]:
    """Return a row for each rank: an error on all of them means no support, an error on some is a failure of all."""
    explanation = primitive.explain(BYTES * primitive.count(len(ranks)), len(ranks))
    errors = {number: " ".join(rank.error.split()) for number, rank in enumerate(ranks) if rank.error}
    if is_broken(ranks):
        results = ["fail"] * len(ranks)
        explanation = "; ".join(f"rank {rank}: {error}" for rank, error in errors.items())
    elif errors:
        results, explanation = ["–"] * len(ranks), f"{backend}: {errors[0]}"
    else:
        expected = primitive.expected([rank.before for rank in ranks], root)
        results = [compare(rank.after, numbers) for rank, numbers in zip(ranks, expected, strict=True)]
    return [
        Check(primitive.name, number, text_of(rank.before), text_of(rank.after), result, explanation)
        for number, (rank, result) in enumerate(zip(ranks, results, strict=True))
    ]


def compare(after: Sequence[float], expected: Numbers | None) -> str:
    """Return pass or fail, or – for a rank that may hold anything."""
    if expected is None:
        return "–"
    same = len(after) == len(expected) and np.allclose(after, expected, rtol=TOLERANCE, atol=0)
    return "pass" if same else "fail"


def text_of(numbers: Sequence[float]) -> str:
    return " ".join(f"{number:g}" for number in numbers) or "–"


def tour_table(checks: Sequence[Check], width: int) -> str:
    """Format a paragraph for each primitive: its name and explanation, then a line for each rank."""
    paragraphs = []
    for name, group in groupby(checks, key=lambda check: check.primitive):
        rows = list(group)
        cells = [[f"rank {row.rank}", row.before, "→", row.after, row.result] for row in rows]
        ranks = columns_text(("", "before", "", "after", ""), cells, left=len(cells[0]))
        head = textwrap.fill(f"{name}: {rows[0].explanation}", width)
        paragraphs.append(f"{head}\n{textwrap.indent(ranks, '  ')}")
    return "\n\n".join(paragraphs)
