"""Which optimizer, and its numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from lockstep.config_error import fraction, is_number, not_negative, positive, require
from lockstep.schemas.target import Target


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

    def with_lr(self, lr: float) -> Self:
        return replace(self, lr=lr)


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


@dataclass(frozen=True)
class OwnOptimizer(Target):
    """Any torch optimizer, by its import path: it is called with the parameter groups and these arguments."""

    _decay_bias_and_norm_: bool

    def __post_init__(self) -> None:
        rate = self.arguments.get("lr")
        require(is_number(rate), "optimizer.lr", rate, "a rate is a number", "optimizer.lr=0.01, say")
        positive("optimizer.lr", self.lr)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """`_decay_bias_and_norm_` is ours, all else the target's."""
        own = super().of(values)
        decays = own["arguments"].pop(RULE, True)
        require(isinstance(decays, bool), f"optimizer.{RULE}", decays, "it is true or false", f"optimizer.{RULE}=true")
        return own | {RULE: decays}

    @property
    def lr(self) -> float:
        return float(self.arguments["lr"])

    @property
    def spares_bias_and_norm(self) -> bool:
        return not self._decay_bias_and_norm_

    def with_lr(self, lr: float) -> "OwnOptimizer":
        return replace(self, arguments={**self.arguments, "lr": lr})


RULE = "_decay_bias_and_norm_"
Optimizer = SGD | Adam | OwnOptimizer
