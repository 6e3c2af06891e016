"""A row of the table: what one way took in each round, beside its yardstick in the same round, and its goal."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import median, stdev
from typing import Literal

COUNTED = ("calls", "MB")
"""Units of what is no time: one round tells it."""
LONG_ENOUGH = 0.3
"""Seconds that each timing of a ratio has to last: what comes once in a run, as the choice of kernels, is in it."""
STUDENT = {2: 3.08, 3: 1.89, 4: 1.64, 5: 1.53, 6: 1.48, 7: 1.44, 8: 1.41, 9: 1.40}
"""By rounds: so many standard errors from its mean the truth lies beyond in one of ten cases (one-sided)."""
MANY_ROUNDS = 1.38
NOT_JUDGED = "not judged: too short"


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
    It is judged only where the run was long enough to tell, which `tells` says. `size` is what a curve is drawn over,
    `seconds` the shortest of the timings that a ratio is of.
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
    seconds: float | None = None

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
    def tells(self) -> bool:
        """Whether the rounds are long enough, and further from the goal than chance would bring them."""
        if self.goal is None or (self.seconds is not None and self.seconds < LONG_ENOUGH):
            return False
        rounds = self.compared or self.values
        if self.unit in COUNTED:
            return True
        if len(rounds) < 2:
            return False
        error = STUDENT.get(len(rounds), MANY_ROUNDS) * stdev(rounds) / sqrt(len(rounds))
        return abs(self.judged - self.goal.limit) >= error

    @property
    def holds(self) -> bool | None:
        """None where there is no goal, or it is not judged."""
        return self.goal.met_by(self.judged) if self.goal is not None and self.tells else None

    @property
    def outcome(self) -> str:
        """What the table says of the goal."""
        if self.goal is None:
            return ""
        return {True: "yes", False: "no", None: NOT_JUDGED}[self.holds]

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
            "holds": self.outcome,
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
