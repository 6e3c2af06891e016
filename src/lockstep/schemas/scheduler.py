"""The options of the group `scheduler`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.constraints import Fraction, NonNegativeInt, Rules
from lockstep.schemas.target import Target

if TYPE_CHECKING:
    from lockstep.plan import Plan


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
    plateau: found out before any rank starts.
    """

    interval: Literal["step", "epoch"] = "epoch"
    monitor: str | None = None
    plateau: bool = False
    settings: ClassVar[dict[str, str]] = {"_interval_": "interval", "_monitor_": "monitor"}

    def metric(self, plan: "Plan") -> str:
        """Return the metric that the schedule steps by, if it is a plateau."""
        return self.monitor or plan.monitor[0]

    def rules(self, plan: "Plan") -> Rules:
        if not self.plateau or not plan.train or plan.epoch_metrics is None:
            return
        metric, measured = self.metric(plan), plan.epoch_metrics
        key, reason = "scheduler._monitor_", f"no epoch of this run measures {metric}"
        yield metric in measured, key, reason, f"one of {', '.join(measured)}"
        key, reason = "trainer.check_val_every_n_epoch", f"the schedule steps by {metric} after each epoch"
        fits = plan.trainer.check_val_every_n_epoch == 1 or not metric.startswith("val/")
        yield fits, key, reason, f"{key}=1, or scheduler._monitor_=train/loss"


Scheduler = Constant | OneCycle | WarmupLinear | UserScheduler
