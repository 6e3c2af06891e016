"""The verdict on each quantity of two runs: identical, within a bound, or different, and where it differs first."""

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import Any

from lockstep.compare.comparison_rules import BITS_ONLY, rule_of
from lockstep.compare.furthest import furthest
from lockstep.compare.tolerance import IDENTICAL, INCOMPARABLE, Tolerance
from lockstep.config_error import shorten
from lockstep.files import save_json
from lockstep.run_files import COMPARISON

WIDTH = 116
"""Characters of a line that lists several things."""

When = tuple[float, float]
"""The optimizer step, and the order within it: which of several differences is the first."""

Values = Mapping[tuple[str, str], tuple[Any, When]]
"""What a run has left, by the key of its rule and the place, in words."""


@dataclass
class Quantity:
    """A quantity compared over two whole runs. Differences are absolute below 1, relative above."""

    name: str
    tolerance: Tolerance
    compared: int = 0
    difference: float = 0.0
    first: str | None = None
    """Where it first exceeds the tolerance, in words."""
    when: When = (math.inf, math.inf)

    @property
    def verdict(self) -> str:
        return in_words(self.difference, self.tolerance) if self.first is None else "different"

    def add(self, a: Any, b: Any, where: str, when: When) -> None:
        """Compare one more pair of values of this quantity."""
        self.compared += 1
        distance = difference(a, b)
        self.difference = max(self.difference, distance)
        counts = when[0] <= self.tolerance.steps or math.isinf(distance)
        if distance > self.tolerance.within and counts and self.first is None:
            size = f" (by {distance:.1e})" if math.isfinite(distance) else ""
            self.first, self.when = f"{where}: {shorten(repr(a))} against {shorten(repr(b))}{size}", when


@dataclass
class Comparison:
    """The quantities of two runs, by name.

    `unfinished`: both were interrupted. `left_out`: the keys not compared, by reason. `likely`: of a difference.
    """

    a: str
    b: str
    tolerance: Tolerance
    quantities: dict[str, Quantity] = field(default_factory=dict)
    unfinished: bool = False
    left_out: dict[str, set[str]] = field(default_factory=dict)
    likely: str | None = None

    def add_all(self, a: Values, b: Values) -> None:
        """Compare the values of two runs; one that only one of them has is different."""
        for (key, where), (_, when) in {**a, **b}.items():
            left, right = (values.get((key, where), ("missing", when))[0] for values in (a, b))
            self.add(key, left, right, where, when)

    def add(self, key: str, a: object, b: object, where: str, when: When) -> None:
        """Compare two values by the rule of their key, or list the key as not compared."""
        rule = rule_of(key)
        if rule.how == "not" or (rule.how == "bits" and self.tolerance.within):
            self.left_out.setdefault(rule.quantity if rule.how == "not" else BITS_ONLY, set()).add(rule.pattern)
            return
        tolerance = IDENTICAL if rule.how == "exact" else self.tolerance
        quantity = self.quantities.setdefault(rule.quantity, Quantity(rule.quantity, tolerance))
        quantity.add(*furthest(a, b), where, when)

    @property
    def first_divergence(self) -> Quantity | None:
        """Return the quantity that differs first; a difference in the configuration comes before its effects."""
        differing = [quantity for quantity in self.quantities.values() if quantity.first is not None]
        return min(differing, key=lambda quantity: (quantity.name != "configuration", quantity.when), default=None)

    @property
    def within_tolerance(self) -> bool:
        return self.first_divergence is None

    @property
    def verdict(self) -> str:
        return in_words(self.max_diff, self.tolerance) if self.within_tolerance else "different"

    @property
    def max_diff(self) -> float:
        return max(quantity.difference for quantity in self.quantities.values())

    def text(self, for_terminal: bool = False) -> str:
        """Return a line for each quantity that is not identical, one for all others, one for what is not compared.

        `for_terminal`: it is for stdout; in a terminal the verdict has a colour.
        """
        identical = [name for name, quantity in self.quantities.items() if quantity.verdict == "identical"]
        lines = [f"{self.a}\n  against\n{self.b}"]
        for quantity in self.quantities.values():
            if quantity.name not in identical:
                cells = f"{quantity.name:<22}  {quantity.verdict:<17}  {quantity.compared:>6}  {quantity.first or ''}"
                lines.append(f"  {cells}".rstrip())
        for title, listed in (("identical", identical), ("not compared", sorted(self.left_out))):
            if listed:
                lines += wrap(f"{title}: {', '.join(listed)}", WIDTH, initial_indent="  ", subsequent_indent="    ")
        interrupted = "; neither run finished" if self.unfinished else ""
        verdict = coloured(self.verdict, self.within_tolerance) if for_terminal else self.verdict
        lines.append(f"{verdict}; expected: {self.tolerance}{interrupted}")
        if (first := self.first_divergence) is not None:
            lines.append(f"They differ first in {first.name}, {first.first}.")
            lines += [self.likely] if self.likely else []
        return "\n".join(lines)

    def save(self, folder: Path) -> None:
        """Write comparison.json."""
        first = self.first_divergence
        save_json(
            folder / COMPARISON,
            {
                "a": self.a,
                "b": self.b,
                "verdict": self.verdict,
                "within_tolerance": self.within_tolerance,
                "tolerance": str(self.tolerance),
                "first_divergence": first and f"{first.name}, {first.first}",
                "likely_reason": self.likely,
                "quantities": {
                    name: {
                        "verdict": quantity.verdict,
                        "compared": quantity.compared,
                        "largest_difference": quantity.difference if math.isfinite(quantity.difference) else None,
                        "first_divergence": quantity.first,
                    }
                    for name, quantity in self.quantities.items()
                },
                "not_compared": {reason: sorted(keys) for reason, keys in sorted(self.left_out.items())},
            },
        )


def coloured(text: str, is_good: bool) -> str:
    """Return a text in green or red if stdout is a terminal and NO_COLOR is not set (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or sys.stdout is None or not sys.stdout.isatty():
        return text
    return f"\x1b[{32 if is_good else 31}m{text}\x1b[0m"


def in_words(largest: float, tolerance: Tolerance) -> str:
    """Return a difference that is allowed, in words. After the steps of a bound it may exceed it: it drifts."""
    if largest == 0:
        return "identical"
    if tolerance == INCOMPARABLE:
        return f"other masks: {largest:.1e}"
    return f"within {largest:.1e}" if largest <= tolerance.within else f"drifts to {largest:.1e}"


def difference(a: Any, b: Any) -> float:
    """Return |a-b| / max(1, |a|, |b|) of two finite numbers; 0 for other equal values, infinity for anything else."""
    if a == b:
        return 0.0
    try:
        distance = float(abs(a - b) / max(1.0, abs(a), abs(b)))
    except (TypeError, OverflowError):  # no numbers, or too large for a float
        return math.inf
    return distance if math.isfinite(distance) else math.inf
