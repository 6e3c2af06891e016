"""How the learning rate moves over the run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lockstep.config_error import fraction, not_negative, require
from lockstep.schemas.target import Target

if TYPE_CHECKING:
    from lockstep.plan import Plan

Interval = Literal["step", "epoch", "plateau"]
OURS: dict[str, Any] = {"_interval_": "epoch", "_monitor_": None}


class Schedule:
    """What all schedules say of themselves.

    interval: whether they step after each optimizer step, after an epoch's last, or by a metric of each epoch.
    """

    @property
    def interval(self) -> Interval:
        return "step"

    def check(self, plan: "Plan") -> None:
        """Refuse a run that the schedule does not fit into."""


@dataclass(frozen=True)
class Constant(Schedule):
    name: Literal["none"]


@dataclass(frozen=True)
class OneCycle(Schedule):
    name: Literal["onecycle"]
    warmup_fraction: float

    def __post_init__(self) -> None:
        fraction("scheduler.warmup_fraction", self.warmup_fraction)


@dataclass(frozen=True)
class WarmupLinear(Schedule):
    name: Literal["warmup_linear"]
    warmup_steps: int

    def __post_init__(self) -> None:
        not_negative("scheduler.warmup_steps", self.warmup_steps)

    def check(self, plan: "Plan") -> None:
        key, steps = "scheduler.warmup_steps", plan.steps.total_steps
        fits, reason = (
            not plan.train or self.warmup_steps < steps,
            f"the whole run has {steps} step{'s' if steps > 1 else ''}",
        )
        require(fits, key, self.warmup_steps, reason, f"{key}={steps // 10}")


@dataclass(frozen=True)
class OwnScheduler(Target, Schedule):
    """Any scheduler of torch's kind, by its import path: it is called with the optimizer and these arguments.

    plateau: whether it steps by a metric, as ReduceLROnPlateau does; asked of the target itself.
    """

    _interval_: Literal["step", "epoch"]
    _monitor_: str | None
    plateau: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """`_interval_` and `_monitor_` are ours, all else the target's."""
        own = super().of(values)
        interval, monitor = (own["arguments"].pop(name, usual) for name, usual in OURS.items())
        reason, hint = "it steps after each step or each epoch", "scheduler._interval_=step, or epoch"
        require(interval in ("step", "epoch"), "scheduler._interval_", interval, reason, hint)
        named = monitor is None or isinstance(monitor, str)
        require(named, "scheduler._monitor_", monitor, "it is the name of a metric", "scheduler._monitor_=val/loss")
        return {**own, "_interval_": interval, "_monitor_": monitor}

    @property
    def interval(self) -> Interval:
        return "plateau" if self.plateau else self._interval_

    @property
    def watched_metric(self) -> str | None:
        return self._monitor_

    def watched(self, plan: "Plan") -> str:
        """The metric that it steps by."""
        return self._monitor_ or plan.monitor[0]

    def check(self, plan: "Plan") -> None:
        measured = plan.measured_by_epochs
        known = not plan.train or not self.plateau or self.watched(plan) in measured
        reason = "no epoch of this run measures such a thing"
        require(known, "scheduler._monitor_", self.watched(plan), reason, f"one of {', '.join(measured)}")


Scheduler = Constant | OneCycle | WarmupLinear | OwnScheduler
