"""The verdict on two runs: each quantity identical, within a bound, or different; in words, and as JSON."""

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from textwrap import TextWrapper
from typing import Any

from lockstep.base.config_error import shorten
from lockstep.base.files import save_json, short_path
from lockstep.runs.compare.comparison_rules import (
    BITS_ONLY,
    CONFIGURATION,
    EXPECTED,
    FILES,
    NAMED,
    ONE_WRITES,
    OPTIONAL,
    UNWRITTEN,
    rule_of,
)
from lockstep.runs.compare.tolerance import IDENTICAL, Tolerance
from lockstep.runs.run_files import COMPARISON

WIDTH, NAME, LONGEST = 80, 22, 40  # characters of a line, of a quantity's name, and of a value
MISSING = "missing"  # stands for the value of a run that has none
Values = Mapping[tuple[str, str], tuple[Any, float]]  # with the optimizer step, by the key of a rule and the place


@dataclass
class Quantity:
    """A quantity compared over two whole runs. Differences are absolute below 1, relative above."""

    name: str
    tolerance: Tolerance
    compared: int = 0
    difference: float = 0.0
    first: str | None = None  # where it first exceeds the tolerance, and the values, in words
    when: tuple[float, int] = (math.inf, 0)  # the optimizer step of this difference, and the order within it

    @property
    def verdict(self) -> str:
        return in_words(self.difference, self.tolerance) if self.first is None else "different"

    def add(self, a: Any, b: Any, where: str, when: tuple[float, int]) -> None:
        self.compared += 1
        distance = difference(a, b)
        self.difference = max(self.difference, distance)
        counts = when[0] <= self.tolerance.steps or math.isinf(distance)
        if self.first is None and distance > self.tolerance.within and counts:
            size = f" (by {distance:.1e})" if math.isfinite(distance) else ""
            self.first = f"{where}: {shorten(repr(a), LONGEST)} against {shorten(repr(b), LONGEST)}{size}"
            self.when = when


@dataclass
class Comparison:
    """The quantities of two runs, by name.

    options: those that differ, with both values as they are typed. left_out: the keys not compared, by reason.
    likely: the reason of a difference.
    """

    a: str
    b: str
    tolerance: Tolerance
    options: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    engines: tuple[str, str] = ("lightning", "lightning")
    quantities: dict[str, Quantity] = field(default_factory=dict)
    left_out: dict[str, set[str]] = field(default_factory=dict)
    likely: str | None = None

    def add_all(self, a: Values, b: Values) -> None:
        """Compare the values of two runs; one that only one of them has is different.

        If another program wrote a record, keys that only one of them has, and fingerprints, are left out.
        """
        left_out = {key for key, _ in a} ^ {key for key, _ in b}
        left_out |= {key for key, _ in a if key.startswith(NAMED)}
        for (key, where), (_, step) in {**a, **b}.items():
            if "other" in self.engines and key in left_out:
                self.left_out.setdefault(ONE_WRITES, set()).add(rule_of(key).pattern)
                continue
            left, right = (values.get((key, where), (MISSING, step))[0] for values in (a, b))
            self.add(key, left, right, where, step)

    def add(self, key: str, a: object, b: object, where: str, step: float) -> None:
        """Compare two values by the rule of their key, or list the key as not compared."""
        rule = rule_of(key)
        unwritten = "raw" in self.engines and (a is MISSING or b is MISSING) and key.startswith(OPTIONAL)
        needs_bits = rule.how == "bits" and self.tolerance.within > 0
        if rule.how == "not" or needs_bits or unwritten:
            reason = rule.quantity if rule.how == "not" else BITS_ONLY if needs_bits else UNWRITTEN
            self.left_out.setdefault(reason, set()).add(rule.pattern)
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

    def text(self) -> str:
        """Return the options that differ, a line for each quantity that does, earlier ones first, and the verdict."""
        quantities = sorted(self.quantities.values(), key=lambda quantity: quantity.when)
        differing = [each for each in quantities if each.verdict != "identical"]
        identical = [each.name for each in quantities if each not in differing and each.name not in FILES]
        lists = {"identical": identical, "not compared": sorted(self.left_out.keys() - {EXPECTED})}
        reason = f" ({self.tolerance.reason})" if self.tolerance.reason else ""
        sentences = [f"{self.verdict}; expected: {self.tolerance}{reason}"]
        if (first := self.first_divergence) is not None:
            sentences += [f"They differ first in {first.name}, {first.first}.", *filter(None, [self.likely])]
        blocks = [
            f"{short_path(self.a)}\n  against\n{short_path(self.b)}",
            wrapped(4, (f"  {key}: {shorten(a)} against {shorten(b)}" for key, (a, b) in self.options.items())),
            wrapped(NAME + 6, (f"  {each.name:<{NAME}}  {each.first or each.verdict}" for each in differing)),
            wrapped(4, (f"  {title}: {', '.join(names)}" for title, names in lists.items() if names)),
            wrapped(2, sentences),
        ]
        return "\n\n".join(filter(None, blocks))

    def save(self, folder: Path) -> None:
        save_json(folder / COMPARISON, self.content())

    def _repr_html_(self) -> str:
        """Return the page that Jupyter shows, by name: the report imports this file."""
        report = import_module("lockstep.runs.report")
        return str(report.in_notebook(report.pair_page(Path(self.a), Path(self.b), self.content())))

    def content(self) -> dict[str, Any]:
        """Return what comparison.json has."""
        first = self.first_divergence
        return {
            **{name: getattr(self, name) for name in ("a", "b", "verdict", "within_tolerance")},
            "tolerance": str(self.tolerance),
            "expected_because": self.tolerance.reason,
            "configuration": self.options,
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
        }


def wrapped(indent: int, lines: Iterable[str]) -> str:
    """Return lines of at most WIDTH characters, those that continue one indented."""
    wrap = TextWrapper(WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(wrap.fill, lines))


def in_words(largest: float, tolerance: Tolerance) -> str:
    """Return a difference that is allowed, in words. After the steps of a bound it may exceed it: it drifts."""
    if largest == 0:
        return "identical"
    if not tolerance.is_bound:
        return f"not comparable: {largest:.1e}"
    return f"within {largest:.1e}" if largest <= tolerance.within else f"drifts to {largest:.1e}"


def difference(a: Any, b: Any) -> float:
    """Return |a-b| / max(1, |a|, |b|) of finite numbers; 0 for other equal values, infinity for anything else."""
    if a == b:
        return 0.0
    try:
        distance = float(abs(a - b) / max(1.0, abs(a), abs(b)))
    except (TypeError, OverflowError):  # no numbers, or too large for a float
        return math.inf
    return distance if math.isfinite(distance) else math.inf


def furthest(a: Any, b: Any, any_dtype: bool = False) -> tuple[Any, Any]:
    """Return the elements of two tensors that differ most, or their shapes and types; other values unchanged.

    `any_dtype`: floats of two precisions are compared by their values.
    """
    a, b = (value.tolist() if type(value).__module__ == "numpy" else value for value in (a, b))
    if not hasattr(a, "shape") or not hasattr(b, "shape"):
        a, b = (f"tensor {tuple(value.shape)}" if hasattr(value, "shape") else value for value in (a, b))
        return a, b
    alike = a.dtype == b.dtype or (any_dtype and a.is_floating_point() and b.is_floating_point())
    if a.shape != b.shape or not alike:
        return f"{a.dtype} {tuple(a.shape)}", f"{b.dtype} {tuple(b.shape)}"
    one, other = a.double(), b.double()
    distance = (one - other).abs() / one.abs().maximum(other.abs()).clamp(min=1)
    if not a.is_floating_point():  # float64 cannot resolve the difference of large integers
        distance = distance.clamp(min=sys.float_info.min)
    distance[(a == b) | (one.isnan() & other.isnan())] = 0
    if not distance.any():
        return 0, 0
    index = distance.flatten().nan_to_num(nan=math.inf).argmax()
    return a.flatten()[index].item(), b.flatten()[index].item()
