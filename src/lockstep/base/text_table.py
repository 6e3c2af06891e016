"""Plain tables for the terminal, and numbers in them."""

import math
import shutil
import sys
from collections.abc import Mapping, Sequence

GAP = "  "


def terminal_width() -> int:
    return shutil.get_terminal_size((120, 24)).columns


def width_shown() -> int | None:
    """Return the width of the terminal that stdout is, or None if it is no terminal."""
    return terminal_width() if sys.stdout.isatty() else None


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


def fitted_text(headings: Sequence[str], cells: Sequence[Sequence[str]], width: int | None, left: int = 1) -> str:
    """Return the table if it fits into the width (None: any); else each cell in its own line, but for empty ones."""
    text = columns_text(headings, cells, left)
    if width is None or max(map(len, text.splitlines())) <= width:
        return text
    lines = []
    for row in cells:
        lines += [f"{GAP * place}{cell}" for place, cell in enumerate(row[:left]) if cell]
        named = zip(headings[left:], row[left:], strict=True)
        lines += [f"{GAP * left}{name}: {cell}" for name, cell in named if cell.strip("–")]
    return "\n".join(lines)


def rows_text(rows: Sequence[Mapping[str, object]], width: int | None, left: int = 1) -> str:
    """Return the table of rows with the same keys, which are the headings; numbers get three figures."""
    cells = [[cell if isinstance(cell, str) else figures(cell) for cell in row.values()] for row in rows]  # type: ignore[arg-type]
    return fitted_text([*rows[0]], cells, width, left)


def figures(value: float | None) -> str:
    """Return three significant figures, never in powers of ten."""
    if value is None or not math.isfinite(value):
        return "–" if value is None else str(value)
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"
