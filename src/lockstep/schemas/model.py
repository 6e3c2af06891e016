"""Which net, and what it asks of the data and of the strategy."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from lockstep.bounds import fraction
from lockstep.config_error import require


@dataclass(frozen=True)
class Linear:
    name: Literal["linear"]
    images_only: ClassVar[bool] = False
    stages: ClassVar[int] = 0


@dataclass(frozen=True)
class MLP:
    name: Literal["mlp"]
    hidden: tuple[int, ...]
    images_only: ClassVar[bool] = False
    stages: ClassVar[int] = 0

    def __post_init__(self) -> None:
        sizes_fit = len(self.hidden) > 0 and min(self.hidden) > 0
        require(
            sizes_fit, "model.hidden", self.hidden, "it lists layer sizes of 1 or more", "model.hidden=[30,20], say"
        )


@dataclass(frozen=True)
class CNN:
    name: Literal["cnn"]
    norm: Literal["batch", "none"]
    images_only: ClassVar[bool] = True
    stages: ClassVar[int] = 0


@dataclass(frozen=True)
class LeNet:
    name: Literal["lenet"]
    dropout: float
    images_only: ClassVar[bool] = True
    stages: ClassVar[int] = 0

    def __post_init__(self) -> None:
        fraction("model.dropout", self.dropout)


@dataclass(frozen=True)
class SplitCNN:
    name: Literal["split_cnn"]
    images_only: ClassVar[bool] = True
    stages: ClassVar[int] = 4


Model = Linear | MLP | CNN | LeNet | SplitCNN
