"""The options of the group `logger`."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.constraints import NonNegativeInt, Rules
from lockstep.files import is_utf8
from lockstep.schemas.target import Target

if TYPE_CHECKING:
    from lockstep.plan import Plan


class BaseLogger:
    """Attributes of all loggers. package: an optional package that it needs."""

    package: ClassVar[str | None] = None

    def rules(self, plan: "Plan") -> Rules:
        fits, hint = self.package is None or find_spec(self.package) is not None, "or logger=tensorboard"
        yield fits, "logger", f"it needs the package {self.package}", f"pip install {self.package}, {hint}"


@dataclass(frozen=True)
class TensorBoard(BaseLogger):
    """images: confusion matrices, worst samples, first filters. histograms: every N epochs, weights and gradients."""

    name: Literal["tensorboard"]
    images: bool = True
    pr_curves: bool = False
    histograms: NonNegativeInt = 0
    graph: bool = False

    def rules(self, plan: "Plan") -> Rules:
        reason = f"TensorBoard writes to folders with UTF-8 names only, and the run's is {plan.run_dir}"
        hint = "logger=csv or logger=none, or another hydra.run.dir"
        yield is_utf8(plan.run_dir), "logger", reason, hint


@dataclass(frozen=True)
class CSV(BaseLogger):
    name: Literal["csv"]


@dataclass(frozen=True)
class Wandb(BaseLogger):
    name: Literal["wandb"]
    project: str
    offline: bool
    package: ClassVar[str | None] = "wandb"


@dataclass(frozen=True)
class MLflow(BaseLogger):
    name: Literal["mlflow"]
    experiment: str
    package: ClassVar[str | None] = "mlflow"


@dataclass(frozen=True)
class UserLogger(Target, BaseLogger):
    """A logger of Lightning, with its key on the command line: `logger`, or `logger.NAME`."""

    key: str = ""


Logger = TensorBoard | CSV | Wandb | MLflow | UserLogger


def tensorboard_of(plan: "Plan") -> TensorBoard | None:
    """Return the options of the plan's first TensorBoard logger, if it has one."""
    return next((logger for logger in plan.logger if isinstance(logger, TensorBoard)), None)
