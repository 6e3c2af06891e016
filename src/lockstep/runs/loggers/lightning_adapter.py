"""A user's loggers, and the trackers Weights & Biases and MLflow, which stay within the run's folder and offline."""

import logging
import os
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import lightning.pytorch.loggers as pl_loggers

from lockstep.base.config_error import require
from lockstep.plan import schemas
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.target import KEY
from lockstep.plan.targets import locate
from lockstep.runs.loggers.writers import version

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
