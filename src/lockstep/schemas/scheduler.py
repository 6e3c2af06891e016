"""How the learning rate moves over the run."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lockstep.config_error import config_error, fraction, not_negative

if TYPE_CHECKING:
    from lockstep.plan import Plan


class Schedule:
    """What all schedules say of themselves."""

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
        key, steps = "scheduler.warmup_steps", plan.total_steps
        if plan.train and self.warmup_steps >= steps:
            why = f"the whole run has {steps} step{'s' if steps > 1 else ''}"
            raise config_error(key, self.warmup_steps, why, f"{key}={steps // 10}")


Scheduler = Constant | OneCycle | WarmupLinear
