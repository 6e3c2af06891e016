"""A quantity compared over two runs: how many of its values differ, by how much, and where first."""

import math
import re
import sys
from dataclasses import dataclass
from typing import Any

from lockstep.compare.tolerance import INCOMPARABLE, Tolerance
from lockstep.config_error import shorten

MISSING = "missing"  # stands for the value of a run that has none
DIGESTS = re.compile(r": '[0-9a-f]{16,}' against '[0-9a-f]{16,}'")


@dataclass
class Quantity:
    """A quantity compared over two whole runs. Differences are absolute below 1, relative above."""

    name: str
    tolerance: Tolerance
    compared: int = 0
    differing: int = 0
    difference: float = 0.0
    first: str | None = None
    """Where it first exceeds the tolerance, and the values, in words."""
    when: tuple[float, int] = (math.inf, 0)
    """The optimizer step of this difference, and the order within it."""

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

    def as_json(self) -> dict[str, Any]:
        largest = self.difference if math.isfinite(self.difference) else None
        values = {"verdict": self.verdict, "compared": self.compared, "largest_difference": largest}
        return {**values, "first_divergence": self.first}

    def text(self) -> str:
        """Return the verdict, or where the two differ first; how many differ if the size of a difference is unknown."""
        if self.first is None:
            return self.verdict
        place = DIGESTS.sub("", self.first)
        return place if math.isfinite(self.difference) else f"{self.differing} of {self.compared} differ: {place}"


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


def furthest(a: Any, b: Any, any_dtype: bool = False) -> tuple[Any, Any]:
    """Return the elements of two tensors that differ most, or their shapes and types; other values unchanged.

    `any_dtype`: floats of two precisions are compared by their values.
    """
    a, b = _as_tensor(a), _as_tensor(b)
    if not hasattr(a, "shape") or not hasattr(b, "shape"):
        first, second = (f"tensor {tuple(value.shape)}" if hasattr(value, "shape") else value for value in (a, b))
        return first, second
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
