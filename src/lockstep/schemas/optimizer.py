"""The options of the group `optimizer`."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from lockstep.config_error import is_number, require
from lockstep.constraints import Fraction, NonNegative, Positive
from lockstep.schemas.target import Target


@dataclass(frozen=True)
class BuiltInOptimizer:
    """Options of all built-in optimizers. `decay_bias_and_norm=false` excludes biases and norms from weight decay."""

    lr: Positive
    weight_decay: NonNegative
    decay_bias_and_norm: bool

    @property
    def spares_bias_and_norm(self) -> bool:
        return self.weight_decay > 0 and not self.decay_bias_and_norm

    def with_lr(self, lr: float) -> Self:
        return replace(self, lr=lr)


@dataclass(frozen=True)
class SGD(BuiltInOptimizer):
    name: Literal["sgd"]
    momentum: Fraction


@dataclass(frozen=True)
class Adam(BuiltInOptimizer):
    """Adam, or AdamW, which decouples the weight decay from the gradient."""

    name: Literal["adam", "adamw"]


@dataclass(frozen=True)
class UserOptimizer(Target):
    """Any torch optimizer. It is called with the parameter groups and the arguments.

    classes: the names of its class and the base classes, found out before any rank starts.
    """

    decay_bias_and_norm: bool = True
    classes: tuple[str, ...] = ()
    settings: ClassVar[dict[str, str]] = {"_decay_bias_and_norm_": "decay_bias_and_norm"}

    def __post_init__(self) -> None:
        lr = self.arguments.get("lr")
        require(is_number(lr) and self.lr > 0, "optimizer.lr", lr, "it must be a number above 0", "optimizer.lr=0.01")

    @property
    def lr(self) -> float:
        return float(self.arguments["lr"])

    @property
    def spares_bias_and_norm(self) -> bool:
        return not self.decay_bias_and_norm

    def with_lr(self, lr: float) -> Self:
        return replace(self, arguments={**self.arguments, "lr": lr})


Optimizer = SGD | Adam | UserOptimizer
