"""Lightning's loggers: those of a plan are created here, and all loggers are handed to a Trainer as Lightning's.

The trackers (Weights & Biases, MLflow) stay within the run's folder and off the network.
"""

import logging
import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

import lightning.pytorch.loggers as pl_loggers
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.utilities import rank_zero_only

from lockstep import schemas
from lockstep.config_error import require
from lockstep.loggers.csv_table import CSVWriter, version
from lockstep.loggers.tensorboard import FOLDER, TensorBoardWriter, plain_hparam
from lockstep.plan import Plan
from lockstep.schemas.target import KEY, TensorBoard
from lockstep.targets import locate

if TYPE_CHECKING:
    from lockstep.loggers import Loggers

FILLED = ("save_dir", "run_name", "run_tags")
"""Parameters of a logger that are the run's folder, its name and its tags, unless they are given."""
TRACKER_VARIABLES = {
    **{"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true", "WANDB_CONSOLE": "off"},  # it redirects streams
    **{"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true"},
}


def check(choice: schemas.Logger) -> None:
    """Check a user's target without calling it. Raises ConfigError."""
    target = locate.check(choice.key, choice.call, dict.fromkeys(FILLED))
    if isinstance(target, type):
        _require_logger(choice, target, f"{target.__name__} is not a Logger of Lightning")


def _require_logger(choice: schemas.Logger, kind: type, reason: str) -> None:
    fits = issubclass(kind, pl_loggers.Logger)
    require(fits, f"{choice.key}.{KEY}", choice.call[KEY], reason, "the path of a Lightning logger")


def create_logger(choice: schemas.Logger, plan: Plan, steps: int) -> pl_loggers.Logger:
    """Create a Lightning logger on rank 0; the run of a tracker begins, and each resume is another one."""
    set_rank(0)
    run_name = "/".join(filter(None, (plan.name, version(plan.resume, steps))))
    folders = {
        f"WANDB_{kind}_DIR": f"{plan.run_dir}/wandb/{kind.lower()}" for kind in ("CACHE", "CONFIG", "DATA", "ARTIFACT")
    }
    with patch.dict(os.environ, TRACKER_VARIABLES | folders):
        values = (plan.run_dir, run_name, [*plan.tags])
        logger = locate.create(choice.key, choice.call, dict(zip(FILLED, values, strict=True)))
        _require_logger(choice, type(logger), f"it creates a {type(logger).__name__}, not a Logger of Lightning")
        _ = getattr(logger, "experiment", None)
    return cast(pl_loggers.Logger, logger)


def wandb(project: str, offline: bool, save_dir: str, run_name: str, run_tags: list[str]) -> pl_loggers.WandbLogger:
    """Start a run here: WandbLogger would with an option that wandb warns of."""
    import wandb

    mode: Any = "offline" if offline else "online"
    run = wandb.init(project=project, name=run_name, dir=save_dir, mode=mode, tags=run_tags)
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    return pl_loggers.WandbLogger(run_name, save_dir, offline=offline, project=project, experiment=run)


def mlflow(experiment: str, save_dir: str, run_name: str, run_tags: list[str]) -> pl_loggers.MLFlowLogger:
    logging.getLogger("lightning.pytorch.loggers").setLevel(logging.ERROR)  # it warns of every new store
    store, tags = (Path(save_dir).absolute() / "mlruns").as_uri(), {"tags": ", ".join(run_tags)} if run_tags else None
    return pl_loggers.MLFlowLogger(experiment, run_name, store, tags)


def set_rank(rank: int) -> None:
    """Tell Lightning the rank of this process: the fork server has imported it before the ranks were known."""
    rank_zero_only.rank = rank  # type: ignore[attr-defined]


def trainer_loggers(loggers: "Loggers") -> list[pl_loggers.Logger]:
    """Return the loggers of a Trainer. On rank 0 they write to the same place as `loggers`, on other ranks nowhere."""
    set_rank(loggers.rank)
    adapters = {TensorBoardWriter: TrainerTensorBoardLogger, CSVWriter: TrainerLogger}
    if loggers.rank == 0:
        return [
            adapters[type(logger)](loggers.plan, logger) if type(logger) in adapters else logger
            for logger in loggers.loggers
        ]
    board = pl_loggers.TensorBoardLogger(loggers.plan.run_dir, FOLDER, "")  # it writes on rank 0 alone
    return [board if isinstance(choice.options, TensorBoard) else DummyLogger() for choice in loggers.plan.logger]


class TrainerLogger(pl_loggers.Logger):
    """A Lightning logger that writes to a logger of this package. The run, not the Trainer, closes it."""

    name, version = "csv", ""

    def __init__(self, plan: Plan, target: TensorBoardWriter | CSVWriter) -> None:
        super().__init__()
        self.plan, self.target = plan, target

    @property
    def save_dir(self) -> str:
        return self.plan.run_dir

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.target.log_metrics({name: float(value) for name, value in metrics.items()}, step or 0)

    def log_hyperparams(self, params: Any, *_args: Any, **_options: Any) -> None:
        params = vars(params) if isinstance(params, Namespace) else params
        self.target.log_hyperparams({name: plain_hparam(value) for name, value in params.items()})

    def save(self) -> None:
        self.target.save()

    def finalize(self, status: str) -> None:
        self.target.save()


class TrainerTensorBoardLogger(TrainerLogger, pl_loggers.TensorBoardLogger):
    """A TrainerLogger of the class that modules look for, with the SummaryWriter that they draw with."""

    name = FOLDER

    def __init__(self, plan: Plan, target: TensorBoardWriter) -> None:
        pl_loggers.TensorBoardLogger.__init__(self, plan.run_dir, name=FOLDER, version="", default_hp_metric=False)
        self.plan, self.target = plan, target

    @property
    def experiment(self) -> Any:
        return self.target.writer
