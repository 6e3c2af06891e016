"""The tables on the terminal: columns wrap, and one wide column runs on beside the rows of its group."""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import groupby, zip_longest

from lockstep.collectives.bench import Timing
from lockstep.collectives.fit import Fit
from lockstep.collectives.judge import COLUMNS, Row
from lockstep.text_table import GAP, columns_text, figures

NUMBERS_WIDTH = 24
"""Characters of `before` and of `after`, at most."""
NARROWEST = 30
"""Characters of `explain`, at least, however narrow the terminal is."""


def tour_text(rows: Sequence[Row], width: int) -> str:
    """A line for each rank of each primitive, the explanation beside them."""
    cells = [list(row.cells().values())[:-1] for row in rows]
    widths = [min(NUMBERS_WIDTH, max(map(len, column))) for column in zip(COLUMNS[:-1], *cells, strict=True)]
    room = max(NARROWEST, width - sum(widths) - len(GAP) * len(widths))
    lines = [line([*COLUMNS[:-1]], widths, COLUMNS[-1])]
    for _, group in groupby(rows, key=lambda row: row.primitive):
        lines += ["", *group_lines(list(group), widths, room)]
    return "\n".join(lines)


def group_lines(rows: Sequence[Row], widths: Sequence[int], room: int) -> list[str]:
    """The lines of one primitive: its name and its explanation stand there once."""
    left: list[list[str]] = []
    for number, row in enumerate(rows):
        cells = list(row.cells().values())[:-1]
        cells[0] = cells[0] if number == 0 else ""
        wrapped = [textwrap.wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
        left += [list(parts) for parts in zip_longest(*wrapped, fillvalue="")]
    right = textwrap.wrap(rows[0].explain, room)
    nothing = [""] * len(widths)
    return [line(cells or nothing, widths, part or "") for cells, part in zip_longest(left, right)]


def line(cells: Sequence[str], widths: Sequence[int], last: str) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return GAP.join([*padded, last]).rstrip()


SHOWN_SIZES = 4
"""Of the sizes that were measured every so many-th is shown; bench.csv has all."""


def bench_text(timings: Sequence[Timing]) -> str:
    """Some sizes of each primitive: 4 B, 1 KiB, 256 KiB, 64 MiB, where there are thirteen."""
    table = []
    for _, group in groupby(timings, key=lambda timing: timing.primitive):
        for number, timing in enumerate(list(group)[::SHOWN_SIZES]):
            name = "" if number else timing.primitive
            table.append([name, size_text(timing.size), time_text(timing.seconds), *map(figures, timing.bandwidths)])
    return columns_text(("primitive", "n", "time", "algorithm GB/s", "bus GB/s"), table)


def fit_text(lines: Sequence[Fit]) -> str:
    table = [[fit.primitive, *map(figures, (1e6 * fit.alpha, *fit.bandwidths)), f"{fit.error:.0%}"] for fit in lines]
    headings = ("t = α + n·β", "α in µs", "1/β: algorithm GB/s", "bus GB/s", "median error")
    return columns_text(headings, table)


def size_text(size: int) -> str:
    """4 B, 1 KiB, 64 MiB; to the byte where a size was rounded up to equal shares."""
    for unit, name in ((2**20, "MiB"), (2**10, "KiB")):
        if size and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_text(seconds: float) -> str:
    return f"{figures(1e6 * seconds)} µs" if seconds < 1e-3 else f"{figures(1e3 * seconds)} ms"


def mistakes_text(rows: Sequence[Mapping[str, object]], width: int) -> str:
    """What was done and what is read wrap; the numbers stand to their right."""
    headings = list(rows[0])
    short = [max(len(str(row[name])) for row in [*rows, dict.fromkeys(headings, name)]) for name in headings[2:]]
    half = max(NARROWEST, width - sum(short) - len(GAP) * (len(headings) - 1)) // 2
    widths = [half - 8, half + 8, *short[:-1]]
    lines = [line(headings[:-1], widths, headings[-1])]
    for row in rows:
        wrapped = [
            textwrap.wrap(str(cell), size) for cell, size in zip(row.values(), [*widths, short[-1]], strict=True)
        ]
        for *parts, final in zip_longest(*wrapped, fillvalue=""):
            lines.append(line(parts, widths, final))
    return "\n".join(lines)
