"""Rows of the results: the values of a variant in each round, its baseline in the same rounds, and its goal."""

from dataclasses import dataclass
from statistics import median
from typing import Any

LONG_ENOUGH = 0.3
"""Seconds that each timing of a ratio must last: one-off costs, such as the choice of kernels, are part of it."""
INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Measurement:
    """The seconds of a variant and of its baseline, one for each round.

    The goal is met if in each round the ratio to the baseline, or the value without a baseline, is at most `goal`.
    """

    workload: str
    variant: str
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
    def goal_met(self) -> str:
        """yes, no, inconclusive (a short timing, or rounds on both sides of the goal), or empty without a goal."""
        if self.goal is None:
            return ""
        rounds = {value <= self.goal for value in self.ratios or self.values}
        too_short = bool(self.baseline) and min(self.values + self.baseline_values) < LONG_ENOUGH
        if too_short or len(rounds) > 1:
            return INCONCLUSIVE
        return "yes" if rounds == {True} else "no"

    def row(self) -> dict[str, object]:
        """Return the cells of the table and of bench.csv, by their headings."""
        ratios: Any = self.ratios or (None,)
        return {
            "workload": self.workload,
            "variant": self.variant,
            "median": median(self.values),
            "min": min(self.values),
            "max": max(self.values),
            "against": self.baseline,
            "ratio": median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            "goal": self.goal,
            "met": self.goal_met,
        }
