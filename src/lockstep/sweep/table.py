"""The table of a sweep, as the terminal shows it."""

import textwrap
from collections.abc import Sequence

from lockstep.config_error import shorten
from lockstep.schemas.keys import short_keys
from lockstep.sweep.rows import SweepRow
from lockstep.text_table import fitted_text

MAX_WIDTH = 72
"""Characters of a cell; sweep.csv has all of them."""
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
}


def format_table(rows: Sequence[SweepRow], width: int | None = None) -> str:
    """Return the table without empty columns, and without those of the training split.

    Args:
        width: characters of a line, None for any. A table that is wider has a line for each cell.
    """
    table = [row.cells() for row in rows]
    columns = [name for name in table[0] if any(cells[name] not in (None, "") for cells in table)]
    columns = [name for name in columns if not name.startswith("train_")]
    spaced = {name: name.replace("_", " ", 1) for name in columns if name.startswith(("val_", "test_", "best_"))}
    headings = spaced | HEADINGS | dict(zip(rows[0].varied, short_keys(rows[0].varied), strict=True))
    texts = [[_text(name, cells[name]) for name in columns] for cells in table]
    return fitted_text([headings.get(name, name) for name in columns], texts, width)


def _text(name: str, value: object) -> str:
    if value is None:
        return "–"
    text = " ".join(format(value, FORMATS.get(name, ".4g" if isinstance(value, float) else "")).split())
    if name == "reason":
        return textwrap.shorten(text, MAX_WIDTH, placeholder=" …")
    return shorten(text, MAX_WIDTH)  # the ends of two long paths differ
