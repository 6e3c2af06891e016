"""Where the curves go: none, one, or several at a time."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.config_error import not_negative, require
from lockstep.files import is_utf8
from lockstep.schemas.target import OneOfSeveral

if TYPE_CHECKING:
    from lockstep.plan import Plan


class AnyLogger:
    """What all loggers say of themselves. `package`: what it needs that Lockstep does not bring."""

    name: str
    package: ClassVar[str | None] = None

    def check(self, plan: "Plan") -> None:
        """Refuse a package that is not there, and a folder that it cannot write to."""
        fits = self.package is None or find_spec(self.package) is not None
        hint = f"pip install {self.package}, or logger=tensorboard"
        require(fits, "logger", self.name, f"it needs the package {self.package}", hint)


@dataclass(frozen=True)
class TensorBoard(AnyLogger):
    """`images`: confusion counts, worst samples, first filters.

    `histograms`: of weights and gradients, every N epochs.
    """

    name: Literal["tensorboard"]
    images: bool = True
    pr_curves: bool = False
    histograms: int = 0
    graph: bool = False

    def __post_init__(self) -> None:
        not_negative("logger.tensorboard.histograms", self.histograms)

    def check(self, plan: "Plan") -> None:
        reason = f"TensorBoard writes to no folder whose name is not UTF-8, and the run's is {plan.run_dir}"
        hint = "logger=csv or logger=none, or another hydra.run.dir"
        require(is_utf8(plan.run_dir), "logger", "tensorboard", reason, hint)


@dataclass(frozen=True)
class CSV(AnyLogger):
    name: Literal["csv"]


@dataclass(frozen=True)
class NoLogger(AnyLogger):
    """Not one that a plan has: what the name stands for in a configuration."""

    name: Literal["none"]


@dataclass(frozen=True)
class Wandb(AnyLogger):
    name: Literal["wandb"]
    project: str
    offline: bool
    package: ClassVar[str | None] = "wandb"


@dataclass(frozen=True)
class MLflow(AnyLogger):
    name: Literal["mlflow"]
    experiment: str
    package: ClassVar[str | None] = "mlflow"


@dataclass(frozen=True)
class OwnLogger(OneOfSeveral, AnyLogger):
    """Any Lightning logger, by its import path."""


Logger = TensorBoard | CSV | Wandb | MLflow | OwnLogger


def tensorboard_of(plan: "Plan") -> TensorBoard | None:
    """The first of a plan's loggers that writes for it."""
    return next((own for own in plan.logger if isinstance(own, TensorBoard)), None)
