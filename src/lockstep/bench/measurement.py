"""What one variant took in each round, beside its baseline in the same round, and its goal: a row of the table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import sqrt
from statistics import median, stdev
from typing import Literal

from lockstep.text_table import figures, fitted_text

LONG_ENOUGH = 0.3
"""Seconds that each timing of a ratio has to last: what comes once in a run, as the choice of kernels, is in it."""
CONFIDENCE = 0.9
"""One-sided, of Student's t: how sure it has to be on which side of its goal the mean over rounds lies."""
INCONCLUSIVE = "inconclusive"
HEADINGS = ("workload", "variant", "median", "min … max", "against", "ratio", "min … max", "goal", "met")


@dataclass(frozen=True)
class Measurement:
    """`values` and `baseline_values` are in `unit`, a number for each round; `by` says how they are compared.

    The score, the median over rounds of the comparison, or of the values where there is no baseline, is to be at most
    `goal`.
    """

    workload: str
    variant: str
    unit: str
    values: tuple[float, ...]
    baseline: str = ""
    baseline_values: tuple[float, ...] = ()
    by: Literal["ratio", "difference"] = "ratio"
    goal: float | None = None

    @property
    def compared(self) -> tuple[float, ...]:
        """A ratio, or a difference, for each round; none where there is no baseline."""
        if not self.baseline:
            return ()
        pairs = zip(self.values, self.baseline_values, strict=True)
        return tuple(own / other if self.by == "ratio" else own - other for own, other in pairs)

    @property
    def score(self) -> float:
        return median(self.compared or self.values)

    def conclusive(self, goal: float) -> bool:
        """Whether the timings are long enough, and further from the goal than chance brings them; a count always is."""
        rounds = self.compared or self.values
        if self.unit == "calls":
            return True
        too_short = self.by == "ratio" and min(self.values + self.baseline_values) < LONG_ENOUGH
        if len(rounds) < 2 or (self.baseline and too_short):
            return False
        from scipy.special import stdtrit

        error = stdtrit(len(rounds) - 1, CONFIDENCE) * stdev(rounds) / sqrt(len(rounds))
        return bool(abs(self.score - goal) >= error)

    @property
    def goal_met(self) -> str:
        """yes, no, inconclusive, or nothing where there is no goal."""
        if self.goal is None:
            return ""
        if not self.conclusive(self.goal):
            return INCONCLUSIVE
        return "yes" if self.score <= self.goal else "no"

    def cells(self) -> dict[str, object]:
        """A row of bench.csv."""
        return {
            "workload": self.workload,
            "variant": self.variant,
            "unit": self.unit,
            **spread("", self.values),
            "rounds": len(self.values),
            "baseline": self.baseline,
            "compared_by": self.by if self.baseline else "",
            **spread("compared_", self.compared),
            "goal": self.goal,
            "goal_met": self.goal_met,
        }


def spread(prefix: str, values: tuple[float, ...]) -> dict[str, object]:
    least, middle, most = (min(values), median(values), max(values)) if values else (None, None, None)
    return {f"{prefix}median": middle, f"{prefix}min": least, f"{prefix}max": most}


def take_turns(
    variants: Mapping[str, Callable[[], float]], rounds: int, report: Callable[[str], None]
) -> dict[str, tuple[float, ...]]:
    """What each variant takes in each round, in turns, so that a machine that slows down slows all of them."""
    found: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(1, rounds + 1):
        for name, measure in variants.items():
            report(f"round {number}/{rounds}, {name}")
            found[name].append(measure())
    return {name: tuple(values) for name, values in found.items()}


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
