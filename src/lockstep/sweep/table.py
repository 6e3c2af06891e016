"""The table over a sweep as the terminal shows it."""

import textwrap
from collections.abc import Mapping, Sequence

from lockstep.colour import Colour, painted
from lockstep.config_error import shorten
from lockstep.schemas.keys import short_keys
from lockstep.sweep.rows import SweepRow
from lockstep.text_table import GAP

REASON_WIDTH = 72
"""Characters of a reason in the terminal; sweep.csv has all of them."""

LEAST_REASON = 12
"""In a narrow terminal: as much as the columns before it take."""

STAGES = ("val_", "test_", "best_")
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


FIRST = ("job", "best", "reason")
"""Columns that are shown however narrow the terminal is."""
WORLD = ("engine", "strategy", "devices")
DIFFERENT = ("different", "engines differ")
LAST = ("samples_per_second", "speed_up", "verdict", "efficiency", "max_loss_diff", "epoch_seconds")


def format_table(rows: Sequence[SweepRow], width: int | None = None) -> str:
    """The table for the terminal. A column that is empty in all rows is left out, as are those of the training split.

    Args:
        width: characters of a line; the columns that matter less are left out, and a line says how many. None: any.
    """
    table = [row.cells() for row in rows]
    columns = [name for name in table[0] if any(cells[name] not in (None, "") for cells in table)]
    columns = [name for name in columns if not name.startswith("train_")]
    short = dict(zip(rows[0].varied, short_keys(rows[0].varied), strict=True))
    room = REASON_WIDTH if width is None else min(REASON_WIDTH, max(LEAST_REASON, width - LEAST_REASON))
    spaced = {name: name.replace("_", " ", 1) for name in columns if name.startswith(STAGES)}
    headings = {name: name for name in columns} | spaced | HEADINGS | short
    texts = {name: [headings[name], *(_shown(name, cells[name], room) for cells in table)] for name in columns}
    widths = {name: max(map(len, own)) for name, own in texts.items()}
    shown = columns if width is None else _that_fit(columns, rows, widths, width)
    lines = zip(*(texts[name] for name in shown), strict=True)
    text = "\n".join(
        painted(GAP.join(cell.ljust(widths[name]) for name, cell in zip(shown, line, strict=True)).rstrip(), colour)
        for line, colour in zip(lines, [None, *map(_colour, rows)], strict=True)
    )
    left_out = len(columns) - len(shown)
    return f"{text}\n({left_out} more columns in sweep.csv)" if left_out else text


def _that_fit(columns: Sequence[str], rows: Sequence[SweepRow], widths: Mapping[str, int], width: int) -> list[str]:
    """Of the columns, in their order: first what varies, then what the best is chosen by, then the rest."""
    varies = [name for name in WORLD if len({getattr(row, name) for row in rows}) > 1]
    by_worth = dict.fromkeys([*FIRST, *rows[0].varied, *varies, *rows[0].found, *WORLD, *LAST])
    taken, room = set(), width + len(GAP)
    for name in filter(columns.__contains__, by_worth):
        needed = widths[name] + len(GAP)
        if name in FIRST or needed <= room:
            taken.add(name)
            room -= needed
    return [name for name in columns if name in taken]


def _colour(row: SweepRow) -> Colour | None:
    """Of the best job, and of those that were refused, failed or differ."""
    return "red" if row.reason or row.verdict in DIFFERENT else "green" if row.best else None


def _shown(name: str, value: object, room: int) -> str:
    if value is None:
        return "–"
    form = FORMATS.get(name, ".4g" if isinstance(value, float) else "")
    text = " ".join(format(value, form).split())
    if name == "reason":
        return textwrap.shorten(text, room, placeholder=" …")
    return shorten(text, REASON_WIDTH)  # of a path, say, the ends tell it from another
