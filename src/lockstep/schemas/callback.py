"""Which callbacks of Lightning go along: none, one, or several at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lockstep.config_error import require
from lockstep.schemas.target import OneOfSeveral

if TYPE_CHECKING:
    from lockstep.plan import Plan

SCHEDULER = "GradientAccumulationScheduler"
WRITERS = ("LearningRateMonitor", "ThroughputMonitor", "DeviceStatsMonitor")
"""Lightning's callbacks that end a run without a logger."""


@dataclass(frozen=True)
class NoCallback:
    """Not one that a plan has: what the name stands for in a configuration."""

    name: Literal["none"]


@dataclass(frozen=True)
class OwnCallback(OneOfSeveral):
    """Any Lightning callback, by its import path."""

    @property
    def scheduling(self) -> dict[int, int] | None:
        """Of a GradientAccumulationScheduler: batches of an optimizer step, by the epoch from which on, from 0.

        Raises:
            ConfigError: it is no such thing.
        """
        if self._target_.rpartition(".")[2] != SCHEDULER:
            return None
        key, given = f"{self.key}.scheduling", self.arguments.get("scheduling")
        hint = f"{key}={{4:2}} for two batches a step from the fifth epoch on"
        require(isinstance(given, Mapping) and bool(given), key, given, "it is {EPOCH: BATCHES}", hint)
        schedule = {0: 1, **dict(given or {})}
        for epoch, batches in schedule.items():
            for number, least in ((epoch, 0), (batches, 1)):
                fits = isinstance(number, int) and not isinstance(number, bool) and number >= least
                require(fits, key, given, f"{number} is no whole number of {least} or more", hint)
        return schedule

    def check(self, plan: "Plan") -> None:
        """Refuse to monitor what a plain net is not measured by (a LightningModule's names are its own), and two that
        say how many batches a step has.
        """
        if self.scheduling is not None:
            reason = f"{self.key} says how many batches an optimizer step has"
            key, batches = "accumulate_grad_batches", plan.accumulate_grad_batches
            require(batches == 1, key, batches, reason, f"{key}=1, or without it")
            others = [own for own in plan.callbacks if own.scheduling is not None]
            require(len(others) == 1, "callbacks", [own.key for own in others], "two say it", "one of them")
            reason, hint = f"{plan.model.name} optimizes manually, and does it itself", "no such callback"
            require(not plan.model.manual, "callbacks", SCHEDULER, reason, hint)
        writes = self._target_.rpartition(".")[2] in WRITERS
        reason, hint = "it writes to a logger, and this run has none", "logger=tensorboard, or leave it out"
        require(bool(plan.logger) or not writes, "callbacks", self.name, reason, hint)
        monitor = self.call.get("monitor")
        if plan.train and isinstance(monitor, str) and not plan.model.lightning:
            measured = plan.measured_by_epochs
            reason = "no epoch of this run measures such a thing"
            require(monitor in measured, f"{self.key}.monitor", monitor, reason, f"one of {', '.join(measured)}")
