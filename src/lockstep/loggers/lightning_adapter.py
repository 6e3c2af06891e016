"""Lightning's loggers: any of them as a logger here, and those from here for a Trainer.

A rank that is not the first is told so: the fork server has imported Lightning before anyone knew the ranks.
"""

from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import lightning.pytorch.loggers as theirs
from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers.logger import DummyLogger

from lockstep import schemas
from lockstep.config_error import require
from lockstep.loggers.logger import HyperParameter, Logger
from lockstep.loggers.tensorboard import FOLDER, TensorBoard
from lockstep.loggers.trackers import create_mlflow, create_wandb, finish, set_rank
from lockstep.plan import Plan
from lockstep.schemas.target import KEY
from lockstep.targets import locate

if TYPE_CHECKING:
    from lockstep.loggers import Loggers


class FromLightning(Logger):
    """A Lightning logger, made on rank 0. It gets the hyper-parameters at once; TensorBoard's, with the results."""

    def __init__(self, choice: schemas.Logger, plan: Plan, steps: int, hparams: Mapping[str, HyperParameter]) -> None:
        set_rank(0)
        self.own = made(choice, plan, steps)
        if not isinstance(self.own, theirs.TensorBoardLogger):
            self.own.log_hyperparams({**hparams})

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        self.own.log_metrics({**values}, step=step)

    def flush(self) -> None:
        self.own.save()

    def close(self, hparams: Mapping[str, HyperParameter], results: Mapping[str, float]) -> None:
        if isinstance(self.own, theirs.TensorBoardLogger):
            self.own.log_hyperparams({**hparams}, {f"final/{name}": value for name, value in results.items()})
        self.own.finalize("success")
        finish(self.own, failed=False)

    def fail(self) -> None:
        self.own.save()
        self.own.finalize("failed")
        finish(self.own, failed=True)


FILLED = ("save_dir",)
"""What a logger of the user's own gets if it has a parameter of this name: the run's folder."""


def check(choice: schemas.UserLogger) -> None:
    """Hold a target to what it must be, without a call. Raises ConfigError."""
    found = locate.check(choice.key, choice.call, dict.fromkeys(FILLED))
    if isinstance(found, type):
        _require_logger(choice, found, f"{found.__name__} is not a Logger of Lightning")


def _require_logger(choice: schemas.UserLogger, kind: type, reason: str) -> None:
    fits = issubclass(kind, theirs.Logger)
    require(fits, f"{choice.key}.{KEY}", choice.call[KEY], reason, "the path of a Lightning logger")


def made(choice: schemas.Logger, plan: Plan, steps: int) -> theirs.Logger:
    """The Lightning logger that a plan names; a `save_dir` is the run's folder, unless it is given."""
    match choice:
        case schemas.Wandb():
            return create_wandb(choice, plan, steps)
        case schemas.MLflow():
            return create_mlflow(choice, plan, steps)
        case schemas.UserLogger():
            own = locate.create(choice.key, choice.call, dict.fromkeys(FILLED, plan.run_dir))
            _require_logger(choice, type(own), f"it makes a {type(own).__name__}, and not a Logger of Lightning")
            return own  # type: ignore[no-any-return]
    raise TypeError(choice)


def of_rank(loggers: "Loggers") -> list[theirs.Logger]:
    """What a Trainer is handed. On rank 0 they write to the same place as the loggers themselves, elsewhere nowhere."""
    set_rank(loggers.rank)
    choices = loggers.plan.logger
    written: list[Logger] | list[None] = loggers.loggers or [None] * len(choices)
    return [_of_rank(loggers, choice, own) for choice, own in zip(choices, written, strict=True)]


def _of_rank(loggers: "Loggers", choice: schemas.Logger, own: Logger | None) -> theirs.Logger:
    if isinstance(own, FromLightning):
        return own.own
    if isinstance(choice, schemas.TensorBoard):
        return TensorBoardForTrainer(loggers, own)
    if isinstance(choice, schemas.CSV):
        return ForTrainer(loggers, own)
    return DummyLogger()


class ForTrainer(theirs.Logger):
    """A logger from here as a Lightning logger: what a Trainer or a module logs goes to it. The run closes it."""

    name, version = "csv", ""

    def __init__(self, loggers: "Loggers", own: Logger | None) -> None:
        super().__init__()
        self.loggers, self.own = loggers, own or Logger()

    @property
    def save_dir(self) -> str:
        return self.loggers.plan.run_dir

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.own.log_metrics({name: float(value) for name, value in metrics.items()}, step or 0)

    def log_hyperparams(self, params: Any, *_args: Any, **_options: Any) -> None:
        self.loggers.hparams |= plain(params)
        if isinstance(self.own, TensorBoard):
            self.own.hparams |= plain(params)

    def save(self) -> None:
        self.own.flush()

    def finalize(self, status: str) -> None:
        self.own.flush()


class TensorBoardForTrainer(ForTrainer, theirs.TensorBoardLogger):
    """The same for TensorBoard: of the class that modules look for, with the writer that they draw pictures by."""

    name = FOLDER

    def __init__(self, loggers: "Loggers", own: Logger | None) -> None:
        theirs.TensorBoardLogger.__init__(self, loggers.plan.run_dir, name=FOLDER, version="", default_hp_metric=False)
        self.loggers, self.own = loggers, own or Logger()

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        assert isinstance(self.own, TensorBoard)
        return self.own.writer


def plain(params: Mapping[str, Any] | Namespace, prefix: str = "") -> dict[str, HyperParameter]:
    """Hyper-parameters of a module as plain values, those of a mapping by `name/inner`."""
    values = vars(params) if isinstance(params, Namespace) else params
    found: dict[str, HyperParameter] = {}
    for name, value in values.items():
        if isinstance(value, Mapping | Namespace):
            found |= plain(value, f"{prefix}{name}/")
        else:
            found[f"{prefix}{name}"] = value if isinstance(value, str | int | float) else str(value)
    return found
