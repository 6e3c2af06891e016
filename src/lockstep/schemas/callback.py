"""Which callbacks of Lightning go along: none, one, or several at a time."""

from dataclasses import dataclass
from typing import Literal

from lockstep.schemas.target import OneOfSeveral


@dataclass(frozen=True)
class NoCallback:
    """Not one that a plan has: what the name stands for in a configuration."""

    name: Literal["none"]


@dataclass(frozen=True)
class OwnCallback(OneOfSeveral):
    """Any Lightning callback, by its import path."""
