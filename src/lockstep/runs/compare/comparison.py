"""The verdict on two runs: each quantity identical, within a bound, or different; in words, and as JSON."""

import math
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from textwrap import wrap
from typing import Any

from lockstep.base.config_error import shorten
from lockstep.base.files import save_json, short_path
from lockstep.runs.compare.comparison_rules import (
    BITS_ONLY,
    CONFIGURATION,
    EXPECTED,
    FILES,
    OPTIONAL,
    UNWRITTEN,
    rule_of,
)
from lockstep.runs.compare.tolerance import IDENTICAL, Tolerance
from lockstep.runs.run_files import COMPARISON, CONFIG

WIDTH, NAME = 80, 22  # characters of a line, and of a quantity's name
MISSING = "missing"  # stands for the value of a run that has none
DIGESTS = re.compile(r": '[0-9a-f]{16,}' against '[0-9a-f]{16,}'")
wrapped = partial(wrap, width=WIDTH, break_long_words=False, break_on_hyphens=False)

Values = Mapping[tuple[str, str], tuple[Any, float]]  # with the optimizer step, by the key of a rule and the place


@dataclass
class Quantity:
    """A quantity compared over two whole runs. Differences are absolute below 1, relative above."""

    name: str
    tolerance: Tolerance
    compared: int = 0
    differing: int = 0
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
        if distance <= self.tolerance.within or not counts:
            return
        self.differing += 1
        if self.first is None:
            size = f" (by {distance:.1e})" if math.isfinite(distance) else ""
            self.first, self.when = f"{where}: {shorten(repr(a))} against {shorten(repr(b))}{size}", when

    def text(self) -> str:
        """Return the verdict, or where the two differ first; and how many do if the size of a difference is unknown."""
        counts = f"{self.differing} of {self.compared} differ: " if math.isinf(self.difference) else ""
        return self.verdict if self.first is None else f"{counts}{DIGESTS.sub('', self.first)}"


@dataclass
class Comparison:
    """The quantities of two runs, by name.

    options: those that differ, with both values as they are typed. unfinished: both runs were interrupted.
    left_out: the keys not compared, by reason. likely: the reason of a difference.
    """

    a: str
    b: str
    tolerance: Tolerance
    options: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    engines: tuple[str, str] = ("lightning", "lightning")
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

    @property
    def configuration_differs(self) -> bool:
        """Whether the two config.yaml ask for other computations."""
        quantity = self.quantities.get(CONFIGURATION)
        return quantity is not None and str(quantity.first).startswith(CONFIG)

    def text(self, for_terminal: bool = False) -> str:
        """Return the options that differ, a line for each quantity that does, by when it does first, and the verdict.

        `for_terminal`: the verdict has a colour if stdout is a terminal.
        """
        options, shown, identical = [], [], []
        for key, (a, b) in self.options.items():
            options += wrapped(f"  {key}: {shorten(a, WIDTH)} against {shorten(b, WIDTH)}", subsequent_indent="    ")
        for quantity in sorted(self.quantities.values(), key=lambda quantity: quantity.when):
            if quantity.verdict == "identical":
                identical += [] if quantity.name in (CONFIGURATION, *FILES) else [quantity.name]
            elif quantity.name != CONFIGURATION or not self.configuration_differs:
                text = f"  {quantity.name:<{NAME}}  {quantity.text()}"
                shown += wrapped(text, subsequent_indent=" " * (NAME + 6))
        lists = {"identical": identical, "not compared": sorted(self.left_out.keys() - {EXPECTED})}
        lists = {title: names for title, names in lists.items() if names}
        lines = [f"{short_path(self.a)}\n  against\n{short_path(self.b)}", ""]
        lines += [*options, ""] if options else []
        lines += [*shown, ""] if shown else []
        for title, names in lists.items():
            lines += wrapped(f"  {title}: {', '.join(names)}", subsequent_indent="    ")
        return "\n".join([*lines, "", *self._verdict_text(for_terminal)])

    def _verdict_text(self, for_terminal: bool) -> list[str]:
        """Return the verdict with what was expected, and why; if the configurations are equal, the first difference."""
        condition = ", as the configurations are; otherwise" if self.configuration_differs else ";"
        reason = f" ({self.tolerance.reason})" if self.tolerance.reason else ""
        interrupted = "; neither run finished" if self.unfinished else ""
        expected = f"expected: {self.tolerance}{reason}{interrupted}"
        lines = wrapped(f"{self.verdict}{condition} {expected}", subsequent_indent="  ")
        in_terminal = for_terminal and sys.stdout is not None and sys.stdout.isatty()
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"  # https://no-color.org
        if in_terminal and not plain:
            colour = 32 if self.within_tolerance else 31
            lines[0] = f"\x1b[{colour}m{self.verdict}\x1b[0m{lines[0].removeprefix(self.verdict)}"
        first = self.first_divergence
        if first is not None and not self.configuration_differs:
            lines += wrapped(f"They differ first in {first.name}, {first.first}.", subsequent_indent="  ")
            lines += wrapped(self.likely or "")
        return lines

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
    a, b = _as_tensor(a), _as_tensor(b)
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


def _as_tensor(value: Any) -> Any:
    """Return numbers of numpy, which a user's optimizer or module may keep, as a tensor; other values unchanged."""
    if type(value).__module__ != "numpy":
        return value
    import torch

    return torch.tensor(value) if value.dtype.kind in "biuf" else value.tolist()
