"""Plain tables for the terminal, and numbers in them."""

import math
import shutil
from collections.abc import Mapping, Sequence

GAP = "  "


def terminal_width() -> int:
    return shutil.get_terminal_size((120, 24)).columns


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


def rows_text(rows: Sequence[Mapping[str, object]], left: int = 1) -> str:
    """Return the table of rows with the same keys, which are the headings; numbers get three figures."""
    cells = [[cell if isinstance(cell, str) else figures(cell) for cell in row.values()] for row in rows]  # type: ignore[arg-type]
    return columns_text([*rows[0]], cells, left)


def figures(value: float | None) -> str:
    """Return three significant figures, never in powers of ten."""
    if value is None or not math.isfinite(value):
        return "–" if value is None else str(value)
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"
