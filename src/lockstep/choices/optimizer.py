"""Which optimizer, and its numbers."""

from dataclasses import dataclass
from typing import Literal

from lockstep.choices.bounds import fraction, not_negative, positive


@dataclass(frozen=True)
class SGD:
    name: Literal["sgd"]
    lr: float
    momentum: float
    weight_decay: float

    def __post_init__(self) -> None:
        positive("optimizer.lr", self.lr)
        fraction("optimizer.momentum", self.momentum)
        not_negative("optimizer.weight_decay", self.weight_decay)


@dataclass(frozen=True)
class Adam:
    """Adam, or AdamW by its name: the same numbers, the decay coupled or decoupled."""

    name: Literal["adam", "adamw"]
    lr: float
    weight_decay: float

    def __post_init__(self) -> None:
        positive("optimizer.lr", self.lr)
        not_negative("optimizer.weight_decay", self.weight_decay)


Optimizer = SGD | Adam
