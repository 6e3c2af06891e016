"""The elements of two tensors that differ most."""

import math
import sys
from typing import Any


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
