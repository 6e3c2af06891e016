"""The table over a sweep as the terminal shows it."""

from collections.abc import Sequence
from textwrap import shorten

from lockstep.sweep.rows import SweepRow

REASON_WIDTH = 72
"""Characters of a reason in the terminal; sweep.csv has all of them."""

HEADINGS = {
    "epoch_seconds": "s/epoch",
    "samples_per_second": "samples/s",
    "speed_up": "speed-up",
    "max_loss_diff": "max loss diff",
}
FORMATS = {
    "epoch_seconds": ".3f",
    "samples_per_second": ".0f",
    "speed_up": ".2f",
    "efficiency": ".2f",
    "max_loss_diff": ".1e",
    "slope": ".5f",
    "intercept": ".5f",
}


def format_table(rows: Sequence[SweepRow]) -> str:
    """The table for the terminal; a column that is empty in all rows is left out."""
    table = [row.cells() for row in rows]
    columns = [name for name in table[0] if any(cells[name] not in (None, "") for cells in table)]
    lines = [[_heading(name) for name in columns]]
    lines += [[_shown(name, cells[name]) for name in columns] for cells in table]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _heading(name: str) -> str:
    return HEADINGS.get(name, name.replace("_", " ", 1) if name.startswith("test_") else name)


def _shown(name: str, value: object) -> str:
    if value is None:
        return "–"
    form = ".4f" if name.startswith("test_") else FORMATS.get(name, "")
    return shorten(format(value, form), REASON_WIDTH, placeholder=" …")
