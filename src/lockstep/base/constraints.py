"""Constraints of values, for annotations of dataclass fields: `seed: NonNegativeInt`. `schemas.coerce` checks them."""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from lockstep.base.config_error import as_typed

if TYPE_CHECKING:
    from lockstep.plan.plan import Plan

Rules = Iterator[tuple[bool, str, str, str]]
"""Rules of a plan: whether it is valid, the key to blame, the reason if it is not, what to write instead."""


def only(plan: "Plan", reason: str, **values: object) -> Rules:
    """Yield the rules that keys of a plan have these values; of a group, that it has the option of this name."""
    for key, value in values.items():
        option = attrgetter(key)(plan)
        yield getattr(option, "name", option) == value, key, reason, f"{key}={as_typed(value)}"


class Constraint(NamedTuple):
    """A test of a value, the reason if it fails, and a valid value for the hint."""

    is_valid: Callable[[Any], bool]
    reason: str
    example: str


AT_LEAST_0 = Constraint(lambda value: value >= 0, "it must be 0 or more", "0")

PositiveInt = Annotated[int, Constraint(lambda value: 1 <= value < 2**31, "it must be 1 or more, below 2^31", "1")]
Processes = Annotated[int, Constraint(lambda value: 1 <= value <= 1024, "it must be from 1 to 1024", "1")]
NonNegativeInt = Annotated[int, AT_LEAST_0]
Share = Annotated[
    int | float,
    AT_LEAST_0,
    Constraint(
        lambda value: isinstance(value, int) or value <= 1,
        "a share is at most 1.0, a number of batches is an int",
        "10, or 0.5 for a half",
    ),
]
"""A number of batches, or a share of all."""
