"""Which optimizer, and its numbers."""

from dataclasses import dataclass
from typing import Literal

from lockstep.config_error import fraction, not_negative, positive


@dataclass(frozen=True)
class Decaying:
    """The rate, and the weight decay: of all parameters, or of all but biases and what normalises."""

    lr: float
    weight_decay: float
    decay_bias_and_norm: bool

    def __post_init__(self) -> None:
        positive("optimizer.lr", self.lr)
        not_negative("optimizer.weight_decay", self.weight_decay)

    @property
    def spares_bias_and_norm(self) -> bool:
        return self.weight_decay > 0 and not self.decay_bias_and_norm


@dataclass(frozen=True)
class SGD(Decaying):
    name: Literal["sgd"]
    momentum: float

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("optimizer.momentum", self.momentum)


@dataclass(frozen=True)
class Adam(Decaying):
    """Adam, or AdamW by its name: the same numbers, the decay coupled or decoupled."""

    name: Literal["adam", "adamw"]


Optimizer = SGD | Adam
