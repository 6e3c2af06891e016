"""The groups `logger` and `callbacks`: classes of Lightning, or of the same methods, by their paths."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from lockstep.config_error import require
from lockstep.constraints import NonNegativeInt, Rules, only
from lockstep.schemas.coerce import coerce
from lockstep.schemas.target import Target

if TYPE_CHECKING:
    from lockstep.plan import Plan


@dataclass(frozen=True)
class TensorBoard:
    """images: confusion matrices, worst samples, first filters. histograms: every N epochs, weights and gradients."""

    images: bool = True
    histograms: NonNegativeInt = 0


@dataclass(frozen=True)
class CSV:
    """A table without options."""


OPTIONS: dict[str, type[TensorBoard | CSV]] = {"lockstep.loggers.TensorBoard": TensorBoard, "lockstep.loggers.CSV": CSV}
"""The loggers of Lockstep by their paths: a call returns its options, and the run opens the logger by them."""
FORMER = (("pr_curves", False), ("graph", False))
"""Options of an earlier version that changed nothing, in the configurations of its runs."""


@dataclass(frozen=True)
class Logger(Target):
    """A logger, of Lockstep or of Lightning."""

    @classmethod
    def from_values(cls, key: str, values: Mapping[str, Any]) -> Self:
        logger = super().from_values(key, values)
        _ = logger.options  # raises for wrong ones
        return logger

    @cached_property
    def options(self) -> TensorBoard | CSV | None:
        """Return the options of a logger of Lockstep."""
        kind = OPTIONS.get(self.path)
        if kind is None:
            return None
        arguments = {name: value for name, value in self.arguments.items() if (name, value) not in FORMER}
        return coerce(kind, self.key, {**asdict(kind()), **arguments})

    def require_package(self) -> None:
        """Raise if the package that an option of Lockstep needs is not installed."""
        fits, hint = self.name not in ("wandb", "mlflow") or find_spec(self.name) is not None, "or logger=tensorboard"
        require(fits, "logger", self.name, f"it needs the package {self.name}", f"pip install {self.name}, {hint}")


def tensorboard_of(plan: "Plan") -> TensorBoard | None:
    """Return the options of the plan's first TensorBoard logger, if it has one."""
    return next((logger.options for logger in plan.logger if isinstance(logger.options, TensorBoard)), None)


@dataclass(frozen=True)
class Callback(Target):
    """A callback of Lightning."""

    @property
    def scheduling(self) -> dict[int, int] | None:
        """Return for a GradientAccumulationScheduler the batches of an optimizer step by first epoch, from 0."""
        if self.name != "GradientAccumulationScheduler":
            return None
        value, key = self.call.get("scheduling"), f"{self.key}.scheduling"
        fits = isinstance(value, Mapping) and all(
            type(epoch) is type(count) is int and epoch >= 0 < count for epoch, count in value.items()
        )
        require(fits, key, value, "it is {EPOCH: BATCHES}, epochs from 0", f"{key}={{4:2}}")
        return {0: 1, **(value or {})}

    def rules(self, plan: "Plan") -> Rules:
        if self.scheduling is not None:
            yield from only(plan, f"{self.key} sets the batches of an optimizer step", accumulate_grad_batches=1)
            reason = f"{plan.model.name} optimizes manually, and accumulates by itself"
            yield not plan.model.manual, "callbacks", reason, "no such callback"
