"""A row of the table: what one way took in each round, beside its yardstick in the same round, and its goal."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Literal


@dataclass(frozen=True)
class Goal:
    """At most `limit`, or at least."""

    limit: float
    at_least: bool = False

    def met_by(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class Row:
    """`values` and `yardstick` are in `unit`, a number for each round; `by` says how they are compared.

    The goal is for the median over rounds of what comes of comparing, or, where there is no yardstick, of the values.
    `size` is what a curve is drawn over.
    """

    workload: str
    way: str
    unit: str
    values: tuple[float, ...]
    against: str = ""
    yardstick: tuple[float, ...] = ()
    by: Literal["ratio", "difference"] = "ratio"
    goal: Goal | None = None
    size: int | None = None

    @property
    def compared(self) -> tuple[float, ...]:
        """A ratio, or a difference, for each round; none where there is no yardstick."""
        if not self.against:
            return ()
        pairs = zip(self.values, self.yardstick, strict=True)
        return tuple(own / other if self.by == "ratio" else own - other for own, other in pairs)

    @property
    def judged(self) -> float:
        return median(self.compared or self.values)

    @property
    def holds(self) -> bool | None:
        return None if self.goal is None else self.goal.met_by(self.judged)

    def cells(self) -> dict[str, object]:
        """A row of bench.csv."""
        compared = self.compared
        return {
            "workload": self.workload,
            "way": self.way,
            "size": self.size,
            "unit": self.unit,
            **spread("", self.values),
            "rounds": len(self.values),
            "against": self.against,
            "by": self.by if compared else "",
            **spread("compared_", compared),
            "goal": None if self.goal is None else self.goal.limit,
            "goal_is": "" if self.goal is None else ("at least" if self.goal.at_least else "at most"),
            "holds": {True: "yes", False: "no", None: ""}[self.holds],
        }


def spread(prefix: str, values: tuple[float, ...]) -> dict[str, object]:
    least, middle, most = (min(values), median(values), max(values)) if values else (None, None, None)
    return {f"{prefix}median": middle, f"{prefix}min": least, f"{prefix}max": most}


def alternated(
    ways: Mapping[str, Callable[[], float]], rounds: int, say: Callable[[str], None]
) -> dict[str, tuple[float, ...]]:
    """What each way gives in each round: the ways take turns, so that a machine that slows down slows all of them."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(1, rounds + 1):
        for name, measured in ways.items():
            say(f"round {number}/{rounds}, {name}")
            found[name].append(measured())
    return {name: tuple(values) for name, values in found.items()}
