"""Plain tables on the terminal: columns of text and numbers, and how a number is shown in them."""

import math
import shutil
import sys
from collections.abc import Sequence

GAP = "  "


def terminal_width() -> int:
    return shutil.get_terminal_size((120, 24)).columns


def width_shown() -> int | None:
    """Of the terminal that stdout is; None: it is none, and lines may be of any length."""
    return terminal_width() if sys.stdout.isatty() else None


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


def fitted_text(headings: Sequence[str], cells: Sequence[Sequence[str]], width: int | None, left: int = 1) -> str:
    """The same where it fits into lines of so many characters, or of any; else lines below each other.

    Each row's first columns stand above its other cells, of which those are left out that say nothing.
    """
    text = columns_text(headings, cells, left)
    if width is None or max(map(len, text.splitlines())) <= width:
        return text
    lines = []
    for row in cells:
        lines += [f"{GAP * place}{cell}" for place, cell in enumerate(row[:left]) if cell]
        named = zip(headings[left:], row[left:], strict=True)
        lines += [f"{GAP * left}{name}: {cell}" for name, cell in named if cell.strip("–")]
    return "\n".join(lines)


def figures(value: float | None) -> str:
    """Three significant figures, never in powers of ten."""
    if value is None:
        return "–"
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"
