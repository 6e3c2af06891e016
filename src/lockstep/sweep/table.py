"""The table of a sweep, as the terminal shows it."""

import textwrap
from collections.abc import Mapping, Sequence

from lockstep.colour import painted
from lockstep.config_error import shorten
from lockstep.schemas.keys import short_keys
from lockstep.sweep.rows import WORLD, SweepRow
from lockstep.text_table import GAP

MAX_WIDTH, MIN_WIDTH = 72, 12
"""Characters of a reason, in a wide and in a narrow terminal; sweep.csv has all of them."""
HEADINGS = {
    "best": "",
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
ALWAYS = ("job", "best", "reason")
"""Columns that are shown in any terminal."""
LAST = ("samples_per_second", "speed_up", "verdict", "efficiency", "max_loss_diff", "epoch_seconds")
"""Columns that a narrow terminal leaves out first, from the last on."""


def format_table(rows: Sequence[SweepRow], width: int | None = None) -> str:
    """Return the table without empty columns, and without those of the training split.

    Args:
        width: characters of a line; columns that do not fit are left out, and a line counts them. None: any.
    """
    table = [row.cells() for row in rows]
    columns = [name for name in table[0] if any(cells[name] not in (None, "") for cells in table)]
    columns = [name for name in columns if not name.startswith("train_")]
    room = MAX_WIDTH if width is None else min(MAX_WIDTH, max(MIN_WIDTH, width - MIN_WIDTH))
    spaced = {name: name.replace("_", " ", 1) for name in columns if name.startswith(("val_", "test_", "best_"))}
    headings = spaced | HEADINGS | dict(zip(rows[0].varied, short_keys(rows[0].varied), strict=True))
    texts = {name: [headings.get(name, name), *(_text(name, cells[name], room) for cells in table)] for name in columns}
    widths = {name: max(map(len, column)) for name, column in texts.items()}
    shown = columns if width is None else _fitting(columns, rows, widths, width)
    lines = []
    for number, line in enumerate(zip(*(texts[name] for name in shown), strict=True)):
        text = GAP.join(cell.ljust(widths[name]) for name, cell in zip(shown, line, strict=True)).rstrip()
        lines.append(_coloured(text, rows[number - 1]) if number else text)
    if len(shown) < len(columns):
        lines.append(f"({len(columns) - len(shown)} more columns in sweep.csv)")
    return "\n".join(lines)


def _fitting(columns: Sequence[str], rows: Sequence[SweepRow], widths: Mapping[str, int], width: int) -> list[str]:
    """Return the columns that fit: first those that vary, then the metrics, then the rest."""
    varying = [name for name in WORLD if len({getattr(row, name) for row in rows}) > 1]
    by_priority = dict.fromkeys([*ALWAYS, *rows[0].varied, *varying, *rows[0].metrics, *WORLD, *LAST])
    fitting, room = set(), width + len(GAP)
    for name in (name for name in by_priority if name in columns):
        needed = widths[name] + len(GAP)
        if name in ALWAYS or needed <= room:
            fitting.add(name)
            room -= needed
    return [name for name in columns if name in fitting]


def _coloured(text: str, row: SweepRow) -> str:
    if row.reason or row.verdict in ("different", "engines differ"):
        return painted(text, "red")
    return painted(text, "green") if row.best else text


def _text(name: str, value: object, room: int) -> str:
    if value is None:
        return "–"
    text = " ".join(format(value, FORMATS.get(name, ".4g" if isinstance(value, float) else "")).split())
    if name == "reason":
        return textwrap.shorten(text, room, placeholder=" …")
    return shorten(text, MAX_WIDTH)  # the ends of two long paths differ
