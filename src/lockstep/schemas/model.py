"""Which net, and what it asks of the data and of the strategy."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.config_error import as_typed, fraction, require
from lockstep.schemas.engine import Lightning
from lockstep.schemas.target import BuiltIn, Target

if TYPE_CHECKING:
    from lockstep.plan import Plan


TOKENS_ONLY = "lockstep.nets.char_rnn.CharRNN"


class Net:
    """What all nets say of themselves. `stages`: in how many parts devices can share it."""

    name: str
    images_only: ClassVar[bool] = False
    stages: ClassVar[int] = 0
    own_code: ClassVar[bool] = False
    lightning: ClassVar[bool] = False
    """Whether it is a LightningModule, which brings its loss, its optimizers and what it logs."""
    manual: bool = False
    """Whether it steps its optimizers itself."""

    def check(self, plan: "Plan") -> None:
        """Refuse data that the net does not take."""
        reason = f"it takes images, and data={plan.data.name} holds none"
        hint = "model=mlp or model=linear, or data=digits"
        require(not self.images_only or plan.data.images, "model", self.name, reason, hint)
        reason = "callbacks beside a plain net would see shards of its weights"
        fits = not plan.callbacks or not plan.strategy.sharded
        require(fits, "strategy", plan.strategy.name, reason, "strategy=ddp, or callbacks=none")


@dataclass(frozen=True)
class Linear(BuiltIn, Net):
    path: ClassVar[str] = "lockstep.nets.linear.Linear"
    name: Literal["linear"]


@dataclass(frozen=True)
class MLP(BuiltIn, Net):
    path: ClassVar[str] = "lockstep.nets.mlp.MLP"
    name: Literal["mlp"]
    hidden: tuple[int, ...]

    def __post_init__(self) -> None:
        fits, reason = min(self.hidden, default=0) > 0, "it lists layer sizes of 1 or more"
        require(fits, "model.hidden", self.hidden, reason, "model.hidden=[30,20], say")


@dataclass(frozen=True)
class CNN(BuiltIn, Net):
    path: ClassVar[str] = "lockstep.nets.cnn.CNN"
    name: Literal["cnn"]
    norm: Literal["batch", "none"]
    images_only: ClassVar[bool] = True


@dataclass(frozen=True)
class LeNet(BuiltIn, Net):
    path: ClassVar[str] = "lockstep.nets.lenet.LeNet"
    name: Literal["lenet"]
    dropout: float
    images_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        fraction("model.dropout", self.dropout)


@dataclass(frozen=True)
class SplitCNN(BuiltIn, Net):
    path: ClassVar[str] = "lockstep.nets.split_cnn.SplitCNN"
    name: Literal["split_cnn"]
    images_only: ClassVar[bool] = True
    stages: ClassVar[int] = 4


@dataclass(frozen=True)
class OwnNet(Target, Net):
    """A net of the user's own. What it holds is not known: noise, parameters that get no gradient."""

    own_code: ClassVar[bool] = True

    def check(self, plan: "Plan") -> None:
        """Refuse the built-in net over tokens on anything else."""
        super().check(plan)
        fits = self._target_ != TOKENS_ONLY or plan.task.samples in ("sequences", "any")
        reason = f"it reads tokens, and task={plan.task.name} takes data={plan.data.name} for something else"
        require(fits, "model", self.name, reason, "task=language_modelling, and data=text, say")


@dataclass(frozen=True)
class OwnModule(Target, Net):
    """A LightningModule of the user's own. `manual`: whether it steps its optimizers itself."""

    manual: bool = False
    own_code: ClassVar[bool] = True
    lightning: ClassVar[bool] = True

    def check(self, plan: "Plan") -> None:
        """Refuse what the plan would do, and a LightningModule does itself."""
        reason = "the loss of a LightningModule is not scaled here"
        require(plan.precision != "16-mixed", "precision", plan.precision, reason, "precision=bf16-mixed")
        averaged = plan.engine.gradient_sync == Lightning.gradient_sync or plan.gradient_sync == "none"
        reason = "the gradients of a LightningModule are averaged by DistributedDataParallel"
        require(averaged, "engine.gradient_sync", plan.gradient_sync, reason, "engine.gradient_sync=ddp")
        reason, by_module = "it is for plain nets", f"{self.name} optimizes manually, and does it itself"
        asked: list[tuple[str, object, object, str]] = [
            ("dropout_rng", plan.dropout_rng, "per_rank", reason),
            ("show_shapes", plan.show_shapes, False, reason),
            ("task", plan.task.name, "auto", reason),
            ("scheduler", plan.scheduler.name, "none", reason),
        ]
        if self.manual:
            asked += [("accumulate_grad_batches", plan.accumulate_grad_batches, 1, by_module)]
            asked += [("gradient_clip_val", plan.gradient_clip_val, None, by_module)]
        for key, value, usual, reason in asked:
            require(value == usual, key, value, reason, f"{key}={as_typed(usual)}")


Model = Linear | MLP | CNN | LeNet | SplitCNN | OwnNet | OwnModule
