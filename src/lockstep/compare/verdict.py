"""The verdict on each quantity of two runs: identical, within a bound, or different, and where it differs first."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import Any

from lockstep.colour import Colour, painted
from lockstep.compare.comparison_rules import EXACT
from lockstep.compare.tolerance import IDENTICAL, INCOMPARABLE, Tolerance
from lockstep.files import save_json
from lockstep.run_files import COMPARISON
from lockstep.text_table import terminal_width

WIDTH = 116
"""Characters of a line that lists several things."""


@dataclass
class Quantity:
    """One thing compared over the whole run. Differences are absolute below 1, relative above."""

    name: str
    tolerance: Tolerance
    tensor: bool = False
    """Whether it is a parameter or a buffer."""
    compared: int = 0
    difference: float = 0.0
    first: str | None = None
    """Where it first exceeds the tolerance, in words."""
    when: tuple[float, float] = (math.inf, math.inf)

    @property
    def verdict(self) -> str:
        if self.first is not None:
            return "different"
        return in_words(self.difference, self.tolerance)

    def add(self, a: Any, b: Any, where: str, when: tuple[float, float]) -> None:
        """Compare one more pair of values of this quantity.

        Args:
            when: the optimizer step, and the order within it: which of several differences is the first.
        """
        self.compared += 1
        distance = difference(a, b)
        self.difference = max(self.difference, distance)
        counts = when[0] <= self.tolerance.steps or math.isinf(distance)
        if distance > self.tolerance.within and counts and self.first is None:
            by = f" (by {distance:.1e})" if math.isfinite(distance) else ""
            self.first, self.when = f"{where}: {a!r} against {b!r}{by}", when


@dataclass
class Comparison:
    a: str
    b: str
    tolerance: Tolerance
    quantities: dict[str, Quantity] = field(default_factory=dict)
    unfinished: bool = False
    """Whether both runs were interrupted."""
    left_out: dict[str, set[str]] = field(default_factory=dict)
    """What is not compared, by the reason."""
    likely: str | None = None
    """Why they probably differ."""

    def of(self, name: str, tensor: bool = False) -> Quantity:
        tolerance = IDENTICAL if name in EXACT and not tensor else self.tolerance
        return self.quantities.setdefault(name, Quantity(name, tolerance, tensor))

    def leave_out(self, reason: str, key: str) -> None:
        """List a key as not compared, with the reason."""
        self.left_out.setdefault(reason, set()).add(key)

    @property
    def first_divergence(self) -> Quantity | None:
        """The quantity that differs first."""
        differing = [quantity for quantity in self.quantities.values() if quantity.first is not None]
        return min(differing, key=lambda quantity: quantity.when, default=None)

    @property
    def within_tolerance(self) -> bool:
        return self.first_divergence is None

    @property
    def verdict(self) -> str:
        return in_words(self.max_diff, self.tolerance) if self.within_tolerance else "different"

    @property
    def max_diff(self) -> float:
        return max(quantity.difference for quantity in self.quantities.values())

    def shown(self) -> str:
        """The same for a terminal, as wide as it is: what is identical, or within its bound, is green, the rest red."""
        return self.text(painted, min(WIDTH, terminal_width()))

    def text(self, paint: Callable[[str, Colour], str] = lambda text, _: text, columns: int = WIDTH) -> str:
        """A line for what is not identical, one for all that is, one for what is not compared."""
        shown = [one for one in self.quantities.values() if one.verdict != "identical"]
        width = max((len(one.name) for one in shown), default=0)
        lines = [
            f"  {one.name:<{width}}  {one.verdict:<17}  {one.compared:>6}  {one.first or ''}".rstrip() for one in shown
        ]
        alike = [one for one in self.quantities.values() if one.verdict == "identical"]
        names = [one.name for one in alike if not one.tensor]
        if tensors := sum(one.tensor for one in alike):
            names.append(f"{tensors} parameters and buffers")
        for head, listed in (("identical", names), ("not compared", sorted(self.left_out))):
            if listed:
                lines += wrap(f"{head}: {', '.join(listed)}", columns, initial_indent="  ", subsequent_indent="    ")
        end = f"{paint(self.verdict, 'green' if self.within_tolerance else 'red')}; expected: {self.tolerance}"
        if self.unfinished:
            end += "; neither run finished"
        if self.first_divergence is not None:
            first = f"They differ first in {self.first_divergence.name}, {self.first_divergence.first}."
            end += f"\n{paint(first, 'red')}"
            end += f"\n{self.likely}" if self.likely else ""
        return "\n".join([f"{self.a}\n  against\n{self.b}", *lines, end])

    def save(self, folder: Path) -> None:
        """comparison.json"""
        quantities = {
            name: {
                "verdict": quantity.verdict,
                "compared": quantity.compared,
                "largest_difference": quantity.difference if math.isfinite(quantity.difference) else None,
                "first_divergence": quantity.first,
            }
            for name, quantity in self.quantities.items()
        }
        first = self.first_divergence and f"{self.first_divergence.name}, {self.first_divergence.first}"
        values = {
            "a": self.a,
            "b": self.b,
            "verdict": self.verdict,
            "within_tolerance": self.within_tolerance,
            "tolerance": str(self.tolerance),
            "first_divergence": first,
            "likely_reason": self.likely,
            "quantities": quantities,
            "not_compared": {reason: sorted(keys) for reason, keys in sorted(self.left_out.items())},
        }
        save_json(folder / COMPARISON, values)


def in_words(largest: float, tolerance: Tolerance) -> str:
    """A difference within the tolerance. Behind the steps that a bound holds for it may be larger: it drifts."""
    if largest == 0:
        return "identical"
    if tolerance == INCOMPARABLE:
        return f"other masks: {largest:.1e}"
    return f"within {largest:.1e}" if largest <= tolerance.within else f"drifts to {largest:.1e}"


def difference(a: Any, b: Any) -> float:
    """0 for equals; for two finite numbers |a-b| / max(1, |a|, |b|); infinite for anything else."""
    if a == b:
        return 0.0
    if isinstance(a, float | int) and isinstance(b, float | int) and math.isfinite(a) and math.isfinite(b):
        return abs(a - b) / max(1.0, abs(a), abs(b))
    return math.inf
