"""The options of the group `callbacks`: callbacks of Lightning."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep.config_error import require
from lockstep.constraints import Rules
from lockstep.schemas.target import Target

if TYPE_CHECKING:
    from lockstep.plan import Plan

SCHEDULER = "GradientAccumulationScheduler"


@dataclass(frozen=True)
class UserCallback(Target):
    """A callback, with its key on the command line: `callbacks`, or `callbacks.NAME`."""

    key: str = ""

    @property
    def scheduling(self) -> dict[int, int] | None:
        """Return for a GradientAccumulationScheduler the batches of an optimizer step by first epoch, from 0.

        Raises:
            ConfigError: the argument `scheduling` has another form.
        """
        if self.name != SCHEDULER:
            return None
        key, value = f"{self.key}.scheduling", self.arguments.get("scheduling")
        hint = f"{key}={{4:2}} for two batches a step from the fifth epoch on"
        require(isinstance(value, Mapping) and bool(value), key, value, "it is {EPOCH: BATCHES}", hint)
        schedule = {0: 1, **(value or {})}
        fits = all(type(number) is int for item in schedule.items() for number in item)
        fits = fits and min(schedule) >= 0 and min(schedule.values()) >= 1
        require(fits, key, value, "epochs are ints from 0, batches are ints from 1", hint)
        return schedule

    def rules(self, plan: "Plan") -> Rules:
        if self.scheduling is not None:
            key, reason = "accumulate_grad_batches", f"{self.key} sets the batches of an optimizer step"
            yield plan.accumulate_grad_batches == 1, key, reason, f"{key}=1, or without it"
            reason = f"{plan.model.name} optimizes manually, and accumulates by itself"
            yield not plan.model.manual, "callbacks", reason, "no such callback"
        metric, measured = self.arguments.get("monitor"), plan.epoch_metrics
        if plan.train and isinstance(metric, str) and measured is not None:
            reason, hint = "no epoch of this run measures it", f"one of {', '.join(measured)}"
            require(metric in measured, f"{self.key}.monitor", metric, reason, hint)
