"""The bench's table on the terminal: a line for each variant, beside its baseline and its goal."""

from collections.abc import Sequence
from itertools import groupby
from statistics import median

from lockstep.bench.measurement import Measurement
from lockstep.text_table import figures, fitted_text

HEADINGS = ("workload", "variant", "median", "min … max", "against", "ratio", "min … max", "goal", "met")


def bench_table(rows: Sequence[Measurement], width: int | None = None) -> str:
    """In lines of so many characters; None: of any.

    A workload's name stands in its first line alone; so does what a variant took that has two baselines.
    """
    cells = []
    for name, group in groupby(rows, key=lambda row: row.workload):
        before = ""
        for number, row in enumerate(group):
            cells.append([name if number == 0 else "", *line(row, row.variant == before)])
            before = row.variant
    return fitted_text(HEADINGS, cells, width, left=2)


def line(row: Measurement, again: bool) -> list[str]:
    own = [row.variant, f"{signed(median(row.values))} {row.unit}", span(row.values)]
    unit, plus = (f" {row.unit}", "+") if row.by == "difference" else ("", "")
    compared = ["–"] * 3
    if row.baseline:
        score = f"{plus if row.score >= 0 else ''}{signed(row.score)}{unit}"
        compared = [row.baseline, score, span(row.compared)]
    goal = "–"
    if row.goal is not None:
        goal = f"≤ {plus}{row.goal:g}" + (unit if row.baseline else f" {row.unit}")
    return [*([""] * len(own) if again else own), *compared, goal, row.goal_met or "–"]


def signed(value: float) -> str:
    return f"-{figures(-value)}" if value < 0 else figures(value)


def span(values: Sequence[float]) -> str:
    return f"{signed(min(values))} … {signed(max(values))}" if len(values) > 1 else "–"
