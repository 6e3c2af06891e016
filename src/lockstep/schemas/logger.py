"""The options of the groups `logger` and `callbacks`."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from lockstep.config_error import require
from lockstep.constraints import NonNegativeInt, Rules, only, require_measured
from lockstep.schemas.target import Target

if TYPE_CHECKING:
    from lockstep.plan import Plan


@dataclass(frozen=True)
class TensorBoard:
    """images: confusion matrices, worst samples, first filters. histograms: every N epochs, weights and gradients."""

    name: Literal["tensorboard"]
    images: bool = True
    pr_curves: bool = False
    histograms: NonNegativeInt = 0
    graph: bool = False


@dataclass(frozen=True)
class CSV:
    name: Literal["csv"]


@dataclass(frozen=True)
class UserLogger(Target):
    """A logger of Lightning."""

    def require_package(self) -> None:
        """Raise if the package that an option of Lockstep needs is not installed."""
        fits, hint = self.name not in ("wandb", "mlflow") or find_spec(self.name) is not None, "or logger=tensorboard"
        require(fits, "logger", self.name, f"it needs the package {self.name}", f"pip install {self.name}, {hint}")


Logger = TensorBoard | CSV | UserLogger


def tensorboard_of(plan: "Plan") -> TensorBoard | None:
    """Return the options of the plan's first TensorBoard logger, if it has one."""
    return next((logger for logger in plan.logger if isinstance(logger, TensorBoard)), None)


@dataclass(frozen=True)
class UserCallback(Target):
    """A callback of Lightning."""

    @property
    def scheduling(self) -> dict[int, int] | None:
        """Return for a GradientAccumulationScheduler the batches of an optimizer step by first epoch, from 0."""
        if self.name != "GradientAccumulationScheduler":
            return None
        value, key = self.arguments.get("scheduling"), f"{self.key}.scheduling"
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
        if plan.train:
            require_measured(f"{self.key}.monitor", self.arguments.get("monitor"), plan.epoch_metrics)
