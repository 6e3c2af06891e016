"""Rows of the results: the values of a variant in each round, its baseline in the same rounds, and its goal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from lockstep.text_table import figures, fitted_text

LONG_ENOUGH = 0.3
"""Seconds that each timing of a ratio must last: one-off costs, such as the choice of kernels, are part of it."""
INCONCLUSIVE = "inconclusive"
HEADINGS = ("workload", "variant", "median", "min … max", "against", "ratio", "min … max", "goal", "met")


@dataclass(frozen=True)
class Measurement:
    """The `values` of a variant and of its baseline, one for each round, in `unit`.

    The score is the median over rounds of the ratio to the baseline, or of the values if there is no baseline. The goal
    is met if it is at most `goal` in every round.
    """

    workload: str
    variant: str
    unit: str
    values: tuple[float, ...]
    baseline: str = ""
    baseline_values: tuple[float, ...] = ()
    goal: float | None = None

    @property
    def ratios(self) -> tuple[float, ...]:
        """The ratio to the baseline in each round; empty without a baseline."""
        pairs = zip(self.values, self.baseline_values, strict=True) if self.baseline else ()
        return tuple(value / base for value, base in pairs)

    @property
    def score(self) -> float:
        return median(self.ratios or self.values)

    @property
    def goal_met(self) -> str:
        """yes, no, inconclusive (a short timing, or rounds on both sides of the goal), or empty without a goal."""
        if self.goal is None:
            return ""
        rounds = {value <= self.goal for value in self.ratios or self.values}
        too_short = bool(self.baseline) and min(self.values + self.baseline_values) < LONG_ENOUGH
        if too_short or len(rounds) > 1:
            return INCONCLUSIVE
        return "yes" if rounds == {True} else "no"

    def csv_row(self) -> dict[str, object]:
        row: dict[str, object] = {"workload": self.workload, "variant": self.variant, "unit": self.unit}
        row |= {"rounds": len(self.values), "baseline": self.baseline, "goal": self.goal, "goal_met": self.goal_met}
        for prefix, values in (("", self.values), ("ratio_", self.ratios)):
            for function in (median, min, max):
                row[f"{prefix}{function.__name__}"] = function(values) if values else None
        return row

    def text_row(self) -> list[str]:
        """Return the cells of the table under HEADINGS."""
        score = figures(self.score) if self.baseline else "–"
        goal = "–" if self.goal is None else f"≤ {self.goal:g}" + ("" if self.baseline else f" {self.unit}")
        values = [self.workload, self.variant, f"{figures(median(self.values))} {self.unit}", span(self.values)]
        return [*values, self.baseline or "–", score, span(self.ratios), goal, self.goal_met or "–"]


def take_turns(
    variants: Mapping[str, Callable[[], float]], rounds: int, report: Callable[[str], None]
) -> dict[str, tuple[float, ...]]:
    """Return the value of each variant in each round; variants alternate, so a slower machine slows all of them."""
    values: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(1, rounds + 1):
        for name, measure in variants.items():
            report(f"round {number}/{rounds}, {name}")
            values[name].append(measure())
    return {name: tuple(numbers) for name, numbers in values.items()}


def bench_table(rows: Sequence[Measurement], width: int | None = None) -> str:
    """Format the rows as a table whose lines have at most `width` characters (None: any number)."""
    return fitted_text(HEADINGS, [row.text_row() for row in rows], width, left=2)


def span(values: Sequence[float]) -> str:
    return f"{figures(min(values))} … {figures(max(values))}" if len(values) > 1 else "–"
