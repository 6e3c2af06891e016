"""Experiment trackers, kept within the run's folder and off the network: Weights & Biases, MLflow."""

import logging
import os
from pathlib import Path
from typing import Literal
from unittest.mock import patch

from lightning.pytorch.loggers import MLFlowLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only

from lockstep import schemas
from lockstep.loggers.csv_table import version
from lockstep.plan import Plan


def create_wandb(choice: schemas.Wandb, plan: Plan, steps: int) -> WandbLogger:
    """Start a wandb run in wandb/; each resume starts another, since logged points cannot be withdrawn."""
    folder = Path(plan.run_dir) / "wandb"
    folders = {f"WANDB_{kind}_DIR": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "ARTIFACT")}
    with patch.dict(os.environ, folders | {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}):
        import wandb

        name = _run_name(plan, steps)
        mode: Literal["offline", "online"] = "offline" if choice.offline else "online"
        settings = wandb.Settings(mode=mode, console="off")  # else it redirects this process's streams
        run = wandb.init(project=choice.project, name=name, dir=plan.run_dir, settings=settings)
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    return WandbLogger(name, plan.run_dir, offline=choice.offline, project=choice.project, experiment=run)


def create_mlflow(choice: schemas.MLflow, plan: Plan, steps: int) -> MLFlowLogger:
    """Start a run in the file store mlruns/; each resume starts another."""
    logging.getLogger("lightning.pytorch.loggers").setLevel(logging.ERROR)  # it warns of every new store
    store = (Path(plan.run_dir).absolute() / "mlruns").as_uri()
    with patch.dict(os.environ, {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}):
        logger = MLFlowLogger(choice.experiment, _run_name(plan, steps), store)
        _ = logger.experiment  # its run begins
    return logger


def set_rank(rank: int) -> None:
    """Tell Lightning the rank of this process."""
    rank_zero_only.rank = rank  # type: ignore[attr-defined]


def _run_name(plan: Plan, steps: int) -> str:
    return "/".join(filter(None, (plan.name, version(plan.resume, steps))))
