"""The tables on the terminal."""

import textwrap
from collections.abc import Sequence
from itertools import groupby

from lockstep.collectives.fit import Fit
from lockstep.collectives.verify import Check
from lockstep.text_table import columns_text, figures, fitted_text


def tour_table(checks: Sequence[Check], width: int) -> str:
    """A paragraph for each primitive: its name and explanation, then a line for each rank."""
    lines = []
    for name, group in groupby(checks, key=lambda check: check.primitive):
        rows = list(group)
        cells = [[f"rank {row.rank}", row.before, "→", row.after, row.result] for row in rows]
        ranks = columns_text(("", "before", "", "after", ""), cells, left=len(cells[0]))
        lines += [*textwrap.wrap(f"{name}: {rows[0].explanation}", width), textwrap.indent(ranks, "  "), ""]
    return "\n".join(lines[:-1])


def fit_table(lines: Sequence[Fit], width: int | None = None) -> str:
    table = []
    for fit in lines:
        numbers = map(figures, (fit.alpha_us, fit.algorithm_GB_per_s, fit.bus_GB_per_s))
        table.append([fit.primitive, *numbers, f"{fit.median_relative_error:.0%}"])
    headings = ("fit t = α + n·β", "latency α in µs", "bandwidth 1/β: algorithm GB/s", "bus GB/s", "median error")
    return fitted_text(headings, table, width)
