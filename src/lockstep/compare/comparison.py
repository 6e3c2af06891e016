"""The verdict on two runs: each quantity identical, within a bound, or different; in words, and as JSON."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Any

from lockstep.compare.comparison_rules import BITS_ONLY, CONFIGURATION, EXPECTED, FILES, rule_of
from lockstep.compare.quantity import MISSING, Quantity, furthest, in_words
from lockstep.compare.tolerance import IDENTICAL, Tolerance
from lockstep.config_error import shorten
from lockstep.files import save_json, short_path
from lockstep.run_files import COMPARISON, CONFIG

WIDTH, NAME = 80, 22  # characters of a line, and of a quantity's name
VALUE = 30  # characters of an option's value, up to which the values of all are aligned
wrapped = partial(wrap, width=WIDTH, break_long_words=False, break_on_hyphens=False)

Values = Mapping[tuple[str, str], tuple[Any, float]]
"""What a run has left, with its optimizer step, by the key of its rule and the place, in words."""


@dataclass
class Comparison:
    """The quantities of two runs, by name.

    `reason`: why they are expected to agree so. `options`: those that differ, with both values, as they are typed.
    `unfinished`: both were interrupted. `left_out`: the keys not compared, by reason. `likely`: of a difference.
    """

    a: str
    b: str
    tolerance: Tolerance
    reason: str = ""
    options: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    quantities: dict[str, Quantity] = field(default_factory=dict)
    unfinished: bool = False
    left_out: dict[str, set[str]] = field(default_factory=dict)
    likely: str | None = None

    def add_all(self, a: Values, b: Values) -> None:
        """Compare the values of two runs; one that only one of them has is different."""
        for (key, where), (_, step) in {**a, **b}.items():
            left, right = (values.get((key, where), (MISSING, step))[0] for values in (a, b))
            self.add(key, left, right, where, step)

    def add(self, key: str, a: object, b: object, where: str, step: float) -> None:
        """Compare two values by the rule of their key, or list the key as not compared."""
        rule = rule_of(key)
        if rule.how == "not" or (rule.how == "bits" and self.tolerance.within):
            self.left_out.setdefault(rule.quantity if rule.how == "not" else BITS_ONLY, set()).add(rule.pattern)
            return
        tolerance = IDENTICAL if rule.how == "exact" else self.tolerance
        quantity = self.quantities.setdefault(rule.quantity, Quantity(rule.quantity, tolerance))
        quantity.add(*furthest(a, b, any_dtype=tolerance.within > 0), where, (step, rule.order))

    @property
    def first_divergence(self) -> Quantity | None:
        """Return the quantity that differs first; a difference in the configuration comes before its effects."""
        differing = [quantity for quantity in self.quantities.values() if quantity.first is not None]
        return min(differing, key=lambda quantity: (quantity.name != CONFIGURATION, quantity.when), default=None)

    @property
    def within_tolerance(self) -> bool:
        return self.first_divergence is None

    @property
    def verdict(self) -> str:
        return in_words(self.max_diff, self.tolerance) if self.within_tolerance else "different"

    @property
    def max_diff(self) -> float:
        return max(quantity.difference for quantity in self.quantities.values())

    @property
    def configuration_differs(self) -> bool:
        """Whether the two config.yaml ask for other computations."""
        quantity = self.quantities.get(CONFIGURATION)
        return quantity is not None and str(quantity.first).startswith(CONFIG)

    def text(self, for_terminal: bool = False) -> str:
        """Return the options that differ, a line for each quantity that does, by when it does first, and the verdict.

        `for_terminal`: it is for stdout; in a terminal the verdict has a colour.
        """
        lines = [f"{short_path(self.a)}\n  against\n{short_path(self.b)}", "", *self._options_text()]
        shown, identical, indent = [], [], " " * (NAME + 6)
        for quantity in sorted(self.quantities.values(), key=lambda quantity: quantity.when):
            if quantity.verdict != "identical" and not (quantity.name == CONFIGURATION and self.configuration_differs):
                shown += wrapped(f"  {quantity.name:<{NAME}}  {quantity.text()}", subsequent_indent=indent)
            elif quantity.verdict == "identical" and quantity.name not in (CONFIGURATION, *FILES):
                identical.append(quantity.name)
        lines += [*shown, ""] if shown else []
        left_out = sorted(self.left_out.keys() - {EXPECTED})
        for title, names in (("identical", identical), ("not compared", left_out)):
            if names:
                lines += wrapped(f"{title}: {', '.join(names)}", initial_indent="  ", subsequent_indent="    ")
        return "\n".join([*lines, "", *self._verdict_text(for_terminal)])

    def _options_text(self) -> list[str]:
        if not self.options:
            return []
        keys = max(map(len, self.options))
        values = min(VALUE, max(len(a) for a, _ in self.options.values()))
        lines = ["  configuration"]
        for key, (a, b) in self.options.items():
            line = f"{key:<{keys}}  {shorten(a, WIDTH):<{values}}  against  {shorten(b, WIDTH)}"
            lines += wrapped(line, initial_indent=" " * 4, subsequent_indent=" " * 6)
        return [*lines, ""]

    def _verdict_text(self, for_terminal: bool) -> list[str]:
        """Return the verdict with what was expected, and why; if the configurations are equal, the first difference."""
        condition = ", as the configurations are; otherwise" if self.configuration_differs else ";"
        reason = f" ({self.reason})" if self.reason else ""
        interrupted = "; neither run finished" if self.unfinished else ""
        expected = f"expected: {self.tolerance}{reason}{interrupted}"
        lines = wrapped(f"{self.verdict}{condition} {expected}", subsequent_indent="  ")
        if for_terminal:
            lines[0] = coloured(self.verdict, self.within_tolerance) + lines[0].removeprefix(self.verdict)
        first = self.first_divergence
        if first is not None and not self.configuration_differs:
            lines += wrapped(f"They differ first in {first.name}, {first.first}.", subsequent_indent="  ")
            lines += wrapped(self.likely or "")
        return lines

    def save(self, folder: Path) -> None:
        first = self.first_divergence
        content = {
            "a": self.a,
            "b": self.b,
            "verdict": self.verdict,
            "within_tolerance": self.within_tolerance,
            "tolerance": str(self.tolerance),
            "expected_because": self.reason,
            "configuration": self.options,
            "first_divergence": first and f"{first.name}, {first.first}",
            "likely_reason": self.likely,
            "quantities": {name: quantity.as_json() for name, quantity in self.quantities.items()},
            "not_compared": {reason: sorted(keys) for reason, keys in sorted(self.left_out.items())},
        }
        save_json(folder / COMPARISON, content)


def coloured(text: str, is_good: bool) -> str:
    """Return a text in green or red if stdout is a terminal and NO_COLOR is not set (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or sys.stdout is None or not sys.stdout.isatty():
        return text
    return f"\x1b[{32 if is_good else 31}m{text}\x1b[0m"
