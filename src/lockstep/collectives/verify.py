"""Check what every rank held after each primitive, and format the results."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from lockstep.collectives.primitives import Numbers, Primitive
from lockstep.collectives.ranks import Observation
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
    primitives: Sequence[Primitive], observations: Mapping[str, Sequence[Observation]], world: int, root: int
) -> list[Check]:
    """Return a row for each primitive and rank; a primitive without observations needs more ranks."""
    table = []
    for primitive in primitives:
        ranks = observations.get(primitive.name)
        if ranks is None:
            reason = f"it needs {primitive.min_ranks} ranks, and there is one"
            table += [Check(primitive.name, rank, "–", "–", "–", reason) for rank in range(world)]
            continue
        explanation = primitive.explain(BYTES * primitive.count(world), world)
        expected = primitive.expected([rank.before for rank in ranks], root)
        for number, ((before, after), numbers) in enumerate(zip(ranks, expected, strict=True)):
            result = compare(after, numbers)
            table.append(Check(primitive.name, number, text_of(before), text_of(after), result, explanation))
    return table


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
