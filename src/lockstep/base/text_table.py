"""Plain tables for the terminal, and numbers in them."""

import math
from collections.abc import Sequence
from typing import Any

GAP = "  "


def columns_text(headings: Sequence[str], cells: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a plain table; the first `left` columns are aligned to the left, the others to the right."""
    table = [list(headings), *map(list, cells)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        GAP.join(
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def short_text(value: object) -> str:
    """Return four significant figures of a float, and any other value as it is."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def figures(value: Any) -> str:
    """Return three significant figures, never in powers of ten."""
    if value is None or not math.isfinite(value):
        return "–" if value is None else str(value)
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"
