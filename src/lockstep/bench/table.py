"""The bench's table on the terminal: a line for each way, beside its yardstick and its goal."""

from collections.abc import Sequence
from itertools import groupby
from statistics import median

from lockstep.bench.row import Row
from lockstep.text_table import columns_text, figures

HEADINGS = ("workload", "way", "median", "min … max", "against", "ratio", "min … max", "goal", "holds")


def text(rows: Sequence[Row]) -> str:
    """A workload's name stands in its first line alone; so does what a way took that has two yardsticks."""
    cells = []
    for name, group in groupby(rows, key=lambda row: row.workload):
        before = ""
        for number, row in enumerate(group):
            cells.append([name if number == 0 else "", *line(row, row.way == before)])
            before = row.way if not row.unit.endswith("/s") else ""
    return columns_text(HEADINGS, cells, left=2)


def line(row: Row, again: bool) -> list[str]:
    own = [row.way, f"{shown(median(row.values))} {row.unit}", between(row.values)]
    compared = ["–"] * 3
    if row.against:
        compared = [row.against, comparison(row), between(row.compared)]
    return [*([""] * len(own) if again else own), *compared, goal(row), row.outcome or "–"]


def shown(value: float) -> str:
    return f"-{figures(-value)}" if value < 0 else figures(value)


def between(values: Sequence[float]) -> str:
    return f"{shown(min(values))} … {shown(max(values))}" if len(values) > 1 else "–"


def comparison(row: Row) -> str:
    if row.by == "ratio":
        return shown(row.judged)
    return f"{'' if row.judged < 0 else '+'}{shown(row.judged)} {row.unit}"


def goal(row: Row) -> str:
    if row.goal is None:
        return "–"
    sign = "≥" if row.goal.at_least else "≤"
    if row.against and row.by == "ratio":
        return f"{sign} {row.goal.limit:g}"
    return f"{sign} {'+' if row.against else ''}{row.goal.limit:g} {row.unit}"
