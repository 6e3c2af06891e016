"""Checks of single values in a checkpoint, and the error that names the one that is wrong."""

import math
from typing import Any

import torch
from torch import Tensor

from lockstep.config_error import is_number


class WrongForm(ValueError):
    """The message is the key of the wrong value."""


def check(holds: bool, what: str) -> None:
    """Raise WrongForm of the key `what` unless it holds."""
    if not holds:
        raise WrongForm(what)


def unfit(error: Exception) -> str:
    """Why a file is no checkpoint, for a message; `error` is what reading it raised."""
    what = f"what it has as {error} cannot be" if isinstance(error, WrongForm) else type(error).__name__
    return f"it is no checkpoint ({what})"


def is_like(wanted: Tensor, own: Any) -> bool:
    """Whether it is a tensor of the same shape, and of floating-point or complex numbers where the other is."""
    if not is_dense(own) or own.shape != wanted.shape:
        return False
    same_floating = own.is_floating_point() == wanted.is_floating_point()
    return bool(same_floating and own.is_complex() == wanted.is_complex())


def is_dense(value: Any) -> bool:
    """Whether it is an ordinary tensor on the CPU: strided, not quantized."""
    plain = isinstance(value, Tensor) and value.layout == torch.strided
    return plain and not value.is_quantized and value.device.type == "cpu"


def is_finite(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def are_alike(wanted: Any, own: Any, exact: bool = False) -> bool:
    """Whether plain values have the same types and lengths throughout, and numbers are finite; `exact`: are equal."""
    if isinstance(wanted, list | tuple):
        both = isinstance(own, list | tuple) and len(own) == len(wanted)
        return both and all(are_alike(one, other, exact) for one, other in zip(wanted, own, strict=True))
    if type(wanted) in (int, float):
        return is_finite(own) and (not exact or bool(own == wanted))
    return type(own) is type(wanted) and (not exact or bool(own == wanted))
