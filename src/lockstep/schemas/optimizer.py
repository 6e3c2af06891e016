"""The options of the groups `optimizer` and `scheduler`."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from lockstep.config_error import is_number, require
from lockstep.constraints import Fraction, NonNegative, NonNegativeInt, Positive, Rules, only, require_measured
from lockstep.schemas.target import Target

if TYPE_CHECKING:
    from lockstep.plan import Plan


@dataclass(frozen=True)
class BuiltInOptimizer:
    """Options of all built-in optimizers. `decay_bias_and_norm=false` excludes biases and norms from weight decay."""

    lr: Positive
    weight_decay: NonNegative
    decay_bias_and_norm: bool

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


DEFAULT = Adam(lr=1e-3, weight_decay=0.0, decay_bias_and_norm=True, name="adam")
"""The default of conf/, which stands beside a LightningModule without effect."""


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

    def with_lr(self, lr: float) -> Self:
        return replace(self, arguments={**self.arguments, "lr": lr})


Optimizer = SGD | Adam | UserOptimizer


class Schedule:
    """Attributes of all schedules.

    interval: whether they step after each optimizer step or after each epoch.
    plateau: whether they step by a metric, like ReduceLROnPlateau.
    """

    interval: Literal["step", "epoch"] = "step"
    plateau: bool = False

    def rules(self, plan: "Plan") -> Rules:
        """Yield the rules of runs that the schedule fits."""
        yield from ()


@dataclass(frozen=True)
class Constant(Schedule):
    name: Literal["none"]


@dataclass(frozen=True)
class OneCycle(Schedule):
    name: Literal["onecycle"]
    warmup_fraction: Fraction


@dataclass(frozen=True)
class WarmupLinear(Schedule):
    name: Literal["warmup_linear"]
    warmup_steps: NonNegativeInt

    def rules(self, plan: "Plan") -> Rules:
        key, steps = "scheduler.warmup_steps", plan.steps.total_steps
        fits = not plan.train or self.warmup_steps < steps
        yield fits, key, f"the run has {steps} step{'s' if steps > 1 else ''}", f"{key}={steps // 10}"


@dataclass(frozen=True)
class UserScheduler(Target, Schedule):
    """Any torch scheduler. It is called with the optimizer and the arguments.

    monitor: the metric of a plateau; None: the one that best.ckpt is best by.
    plateau: whether it is a ReduceLROnPlateau, as its class tells before any rank starts.
    """

    interval: Literal["step", "epoch"] = "epoch"
    monitor: str | None = None
    plateau: bool = False
    settings: ClassVar[dict[str, str]] = {"_interval_": "interval", "_monitor_": "monitor"}

    def metric(self, plan: "Plan") -> str:
        """Return the metric that the schedule steps by, if it is a plateau."""
        return self.monitor or plan.monitor[0]

    def rules(self, plan: "Plan") -> Rules:
        if self.plateau and plan.train and plan.epoch_metrics is not None:
            metric = self.metric(plan)
            require_measured("scheduler._monitor_", metric, plan.epoch_metrics)
            if metric.startswith("val/"):
                reason = f"the schedule steps by {metric} after each epoch"
                yield from only(plan, reason, **{"trainer.check_val_every_n_epoch": 1})


Scheduler = Constant | OneCycle | WarmupLinear | UserScheduler
