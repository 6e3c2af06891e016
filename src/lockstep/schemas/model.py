"""Which net, and what it asks of the data and of the strategy."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.config_error import config_error, fraction, require
from lockstep.schemas.target import Target

if TYPE_CHECKING:
    from lockstep.plan import Plan


class Net:
    """What all nets say of themselves. `stages`: in how many parts devices can share it."""

    name: str
    images_only: ClassVar[bool] = False
    stages: ClassVar[int] = 0
    own_code: ClassVar[bool] = False

    def check(self, plan: "Plan") -> None:
        """Refuse data that the net does not take."""
        if self.images_only and not plan.data.images:
            why = f"it takes images, and data={plan.data.name} holds none"
            raise config_error("model", self.name, why, "model=mlp or model=linear, or data=digits")


@dataclass(frozen=True)
class Linear(Net):
    name: Literal["linear"]


@dataclass(frozen=True)
class MLP(Net):
    name: Literal["mlp"]
    hidden: tuple[int, ...]

    def __post_init__(self) -> None:
        sizes_fit = len(self.hidden) > 0 and min(self.hidden) > 0
        require(
            sizes_fit, "model.hidden", self.hidden, "it lists layer sizes of 1 or more", "model.hidden=[30,20], say"
        )


@dataclass(frozen=True)
class CNN(Net):
    name: Literal["cnn"]
    norm: Literal["batch", "none"]
    images_only: ClassVar[bool] = True


@dataclass(frozen=True)
class LeNet(Net):
    name: Literal["lenet"]
    dropout: float
    images_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        fraction("model.dropout", self.dropout)


@dataclass(frozen=True)
class SplitCNN(Net):
    name: Literal["split_cnn"]
    images_only: ClassVar[bool] = True
    stages: ClassVar[int] = 4


@dataclass(frozen=True)
class OwnNet(Target, Net):
    """A net of the user's own. What it holds is not known: noise, parameters that get no gradient."""

    own_code: ClassVar[bool] = True


Model = Linear | MLP | CNN | LeNet | SplitCNN | OwnNet
