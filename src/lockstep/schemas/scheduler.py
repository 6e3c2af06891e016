"""How the learning rate moves over the run."""

from dataclasses import dataclass
from typing import Literal

from lockstep.bounds import fraction, not_negative


@dataclass(frozen=True)
class Constant:
    name: Literal["none"]


@dataclass(frozen=True)
class OneCycle:
    name: Literal["onecycle"]
    warmup_fraction: float

    def __post_init__(self) -> None:
        fraction("scheduler.warmup_fraction", self.warmup_fraction)


@dataclass(frozen=True)
class WarmupLinear:
    name: Literal["warmup_linear"]
    warmup_steps: int

    def __post_init__(self) -> None:
        not_negative("scheduler.warmup_steps", self.warmup_steps)


Scheduler = Constant | OneCycle | WarmupLinear
