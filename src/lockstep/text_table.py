"""Plain tables on the terminal: columns of text and numbers, and how a number is shown in them."""

import math
import shutil
from collections.abc import Sequence

GAP = "  "


def terminal_width() -> int:
    return shutil.get_terminal_size((120, 24)).columns


def columns_text(headings: Sequence[str], cells: Sequence[Sequence[str]], left: int = 1) -> str:
    """A plain table: the first columns to the left, numbers to the right."""
    table = [list(headings), *map(list, cells)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        GAP.join(
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def figures(value: float | None) -> str:
    """Three significant figures, never in powers of ten."""
    if value is None:
        return "–"
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"
