"""The options of the group `model`, and what each requires of the plan."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from lockstep.constraints import Constraint, Fraction, Rules, only, require_measured
from lockstep.schemas.data import Loaders, ModelLoaders
from lockstep.schemas.engine import Lightning
from lockstep.schemas.optimizer import DEFAULT, OneCycle, WarmupLinear
from lockstep.schemas.target import BuiltIn, Target

if TYPE_CHECKING:
    from lockstep.plan import Plan

TOKENS_ONLY = "lockstep.nets.char_rnn.CharRNN"
MIN_SIDE = 16  # the least height and width of which the convolutions of the nets for images leave something

Sizes = Annotated[
    tuple[int, ...], Constraint(lambda sizes: min(sizes, default=0) > 0, "it lists layer sizes of 1 or more", "[30,20]")
]


class Net:
    """Attributes of all models. The rules are those of plain nets.

    stages: how many devices can share the net.
    manual: whether it is a LightningModule that steps its optimizers itself.
    """

    name: str
    manual: bool = False
    images_only: ClassVar[bool] = False
    stages: ClassVar[int] = 0
    lightning: ClassVar[bool] = False

    def rules(self, plan: "Plan") -> Rules:
        data, shape = f"data={plan.data.name}", plan.data.shape
        if self.images_only:
            hint = "model=mlp or model=linear, or data=digits"
            yield len(shape) == 3, "model", f"it takes images, and {data} has none", hint
            reason = f"it takes images of {MIN_SIDE}×{MIN_SIDE} or more, and those of {data} are {shape[1]}×{shape[2]}"
            yield min(shape[1:]) >= MIN_SIDE, "model", reason, "model=mlp or model=linear, or larger images"
        reason, hint = "a plain net has no dataloaders", "data=… of a data set, or model=… of a LightningModule"
        yield not isinstance(plan.data, ModelLoaders), "data", reason, hint
        reason = "callbacks beside a plain net would see shards of its weights"
        yield not plan.callbacks or not plan.strategy.sharded, "strategy", reason, "strategy=ddp, or callbacks=none"
        yield from only(plan, "the loss of a plain net is its task's", loss_reduction="mean")
        require_measured("optimized_metric", plan.optimized_metric, plan.measured)
        if isinstance(plan.data, Loaders):
            reason = f"it needs to know each batch, and {data} does not tell"
            yield from only(plan, reason, dropout_rng="per_rank")
            if plan.steps.total_steps == 0 and isinstance(plan.scheduler, OneCycle | WarmupLinear):
                yield from only(plan, f"the length of an epoch of {data} is unknown", scheduler="none")


@dataclass(frozen=True)
class Linear(BuiltIn, Net):
    path: ClassVar[str] = "lockstep.nets.linear.Linear"
    name: Literal["linear"]


@dataclass(frozen=True)
class MLP(BuiltIn, Net):
    path: ClassVar[str] = "lockstep.nets.mlp.MLP"
    name: Literal["mlp"]
    hidden: Sizes


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
    dropout: Fraction
    images_only: ClassVar[bool] = True


@dataclass(frozen=True)
class SplitCNN(BuiltIn, Net):
    path: ClassVar[str] = "lockstep.nets.split_cnn.SplitCNN"
    name: Literal["split_cnn"]
    images_only: ClassVar[bool] = True
    stages: ClassVar[int] = 4


@dataclass(frozen=True)
class UserModel(Target, Net):
    """A net of the user's."""

    def rules(self, plan: "Plan") -> Rules:
        yield from super().rules(plan)
        fits = self._target_ != TOKENS_ONLY or plan.task.samples in ("sequences", "any")
        reason = f"it takes tokens, and task={plan.task.name} does not take data={plan.data.name} for tokens"
        yield fits, "model", reason, "task=language_modelling data=text"


@dataclass(frozen=True)
class UserLightningModule(Target, Net):
    """A LightningModule of the user's, which brings its loss, its optimizers and its metrics."""

    manual: bool = False
    lightning: ClassVar[bool] = True

    def rules(self, plan: "Plan") -> Rules:
        reason = f"{self.name} optimizes manually, and the loss of automatic optimization alone is scaled"
        yield plan.precision != "16-mixed" or not self.manual, "precision", reason, "precision=bf16-mixed"
        averaged = plan.engine.gradient_sync == Lightning.gradient_sync or plan.gradient_sync == "none"
        reason = f"{self.name} optimizes manually, and only DistributedDataParallel averages in each backward pass"
        yield averaged or not self.manual, "engine.gradient_sync", reason, "engine.gradient_sync=ddp"
        hint = "no optimizer and scale_lr, but an argument of the module, for example model.lr=0.01"
        yield plan.optimizer == DEFAULT, "optimizer", f"{self.name} configures its optimizer itself", hint
        reason = "it is for plain nets"
        yield from only(plan, reason, dropout_rng="per_rank", show_shapes=False, task="auto", scheduler="none")
        if self.manual:
            reason = f"{self.name} optimizes manually, and does it itself"
            yield from only(plan, reason, accumulate_grad_batches=1, gradient_clip_val=None)


Model = Linear | MLP | CNN | LeNet | SplitCNN | UserModel | UserLightningModule
