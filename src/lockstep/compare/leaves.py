"""Two runs' values, compared by the keys of the ledger."""

import sys
from collections.abc import Mapping
from typing import Any

from lockstep.compare.comparison_rules import entry_of
from lockstep.compare.verdict import Comparison

MISSING = "missing"


BEFORE = (0.0, -1.0)
"""A difference in the configuration comes before its effects."""


def compare_leaves(
    comparison: Comparison, left: Mapping[str, Any], right: Mapping[str, Any], when: tuple[float, float]
) -> None:
    """Compare each key as the ledger says; a key that only one of them has is different."""
    for key in {**left, **right}:
        first = entry_of(key)[1].quantity == "configuration"
        pair = left.get(key, MISSING), right.get(key, MISSING)
        where = key.removesuffix(":").replace(":", ", ", 1)
        compare_values(comparison, key, *pair, where, BEFORE if first else when)


def compare_values(
    comparison: Comparison, key: str, a: object, b: object, where: str, when: tuple[float, float]
) -> None:
    """Compare two values of one key as the ledger says."""
    pattern, entry = entry_of(key)
    if entry.how == "not" or (entry.how == "bits" and comparison.tolerance.within):
        comparison.leave_out(entry.reason, pattern)
    elif entry.how != "itself":
        comparison.of(entry.quantity).add(*furthest(a, b), where, when)


def furthest(a: Any, b: Any) -> tuple[Any, Any]:
    """Values as they are; of two tensors or arrays the elements that differ most, or their shapes and types."""
    a, b = (_of_torch(own) if type(own).__module__ == "numpy" else own for own in (a, b))
    if not hasattr(a, "shape") or not hasattr(b, "shape"):
        return tuple(f"tensor {tuple(own.shape)}" if hasattr(own, "shape") else own for own in (a, b))  # type: ignore[return-value]
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype} {tuple(a.shape)}", f"{b.dtype} {tuple(b.shape)}"
    if a.equal(b):
        return 0, 0
    whole = not a.is_floating_point()
    one, other = a.double(), b.double()
    distance = (one - other).abs() / one.abs().maximum(other.abs()).clamp(min=1)
    if whole:  # float64 cannot resolve the difference of large ones
        distance = distance.clamp(min=sys.float_info.min)
    distance[(a == b) if whole else (one == other) | (one.isnan() & other.isnan())] = 0
    index = distance.flatten().nan_to_num(nan=float("inf")).argmax()
    pair = a.flatten()[index].item(), b.flatten()[index].item()
    return (0.0, 0.0) if pair[0] != pair[0] and pair[1] != pair[1] else pair


def _of_torch(own: Any) -> Any:
    """A number, a tensor, or the text of what is neither."""
    import torch

    if own.ndim == 0:
        return own.item()
    return torch.from_numpy(own.copy()) if own.dtype.kind in "biufc" else str(own.tolist())
