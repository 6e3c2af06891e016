"""Constraints of values, for annotations of dataclass fields: `lr: Positive`. `schemas.coerce` checks them."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

Rules = Iterator[tuple[bool, str, str, str]]
"""Rules of a plan: whether it is valid, the key to blame, the reason if it is not, what to write instead."""


class Constraint(NamedTuple):
    """A test of a value, the reason if it fails, and a valid value for the hint."""

    is_valid: Callable[[Any], bool]
    reason: str
    example: str


def _is_share(value: float) -> bool:
    return isinstance(value, int) or value <= 1


AT_LEAST_1 = Constraint(lambda value: value >= 1, "it must be 1 or more", "1")
AT_LEAST_0 = Constraint(lambda value: value >= 0, "it must be 0 or more", "0")

PositiveInt = Annotated[int, AT_LEAST_1]
Count = Annotated[int, AT_LEAST_1, Constraint(lambda value: value < 2**31, "it must be below 2^31", "1")]
NonNegativeInt = Annotated[int, AT_LEAST_0]
NonNegative = Annotated[float, AT_LEAST_0]
Positive = Annotated[float, Constraint(lambda value: value > 0, "it must be above 0", "0.01")]
Fraction = Annotated[float, Constraint(lambda value: 0 <= value < 1, "it must be at least 0 and below 1", "0.5")]
Share = Annotated[
    int | float,
    Constraint(lambda value: value >= 0, "it must be 0 or more", "10, or 0.5 for a half"),
    Constraint(_is_share, "a share is at most 1.0, a number of batches is an int", "10, or 0.5 for a half"),
]
"""A number of batches, or a share of all."""
