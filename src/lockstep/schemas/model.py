"""Which net, and what it asks of the data and of the strategy."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.config_error import as_typed, config_error, fraction, require
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
        if self.images_only and not plan.data.images:
            why = f"it takes images, and data={plan.data.name} holds none"
            raise config_error("model", self.name, why, "model=mlp or model=linear, or data=digits")
        if plan.callbacks and plan.strategy.sharded:
            reason = "callbacks beside a plain net would see shards of its weights"
            raise config_error("strategy", plan.strategy.name, reason, "strategy=ddp, or callbacks=none")


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
        sizes_fit = len(self.hidden) > 0 and min(self.hidden) > 0
        require(
            sizes_fit, "model.hidden", self.hidden, "it lists layer sizes of 1 or more", "model.hidden=[30,20], say"
        )


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
        if self._target_ == TOKENS_ONLY and plan.task.samples not in ("sequences", "any"):
            why = f"it reads tokens, and task={plan.task.name} takes data={plan.data.name} for something else"
            raise config_error("model", self.name, why, "task=language_modelling, and data=text, say")


@dataclass(frozen=True)
class OwnModule(Target, Net):
    """A LightningModule of the user's own. `manual`: whether it steps its optimizers itself."""

    manual: bool = False
    own_code: ClassVar[bool] = True
    lightning: ClassVar[bool] = True

    def check(self, plan: "Plan") -> None:
        """Refuse what the plan would do, and a LightningModule does itself."""
        if plan.precision == "16-mixed":
            reason = "the loss of a LightningModule is not scaled here"
            raise config_error("precision", plan.precision, reason, "precision=bf16-mixed")
        if plan.engine.gradient_sync != Lightning.gradient_sync and plan.gradient_sync != "none":
            reason = "the gradients of a LightningModule are averaged by DistributedDataParallel"
            raise config_error("engine.gradient_sync", plan.gradient_sync, reason, "engine.gradient_sync=ddp")
        for key, value, usual in (
            ("dropout_rng", plan.dropout_rng, "per_rank"),
            ("show_shapes", plan.show_shapes, False),
            ("task", plan.task.name, "auto"),
            ("scheduler", plan.scheduler.name, "none"),
        ):
            if value != usual:
                raise config_error(key, value, "it is for plain nets", f"{key}={as_typed(usual)}")
        if not self.manual:
            return
        why = f"{self.name} optimizes manually, and does it itself"
        if (batches := plan.accumulate_grad_batches) != 1:
            raise config_error("accumulate_grad_batches", batches, why, "accumulate_grad_batches=1")
        if (clip := plan.gradient_clip_val) is not None:
            raise config_error("gradient_clip_val", clip, why, "gradient_clip_val=null")


Model = Linear | MLP | CNN | LeNet | SplitCNN | OwnNet | OwnModule
