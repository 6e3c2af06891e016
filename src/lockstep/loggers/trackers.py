"""Experiment trackers, kept within the run's folder and off the network: Weights & Biases, MLflow."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from unittest.mock import patch

from lightning.pytorch.loggers import Logger, MLFlowLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only

from lockstep import schemas
from lockstep.loggers.table import version
from lockstep.plan import Plan


def create_wandb(choice: schemas.Wandb, plan: Plan, steps: int) -> WandbLogger:
    """Start a wandb run in wandb/; each resume starts another, since logged points cannot be withdrawn."""
    folder = Path(plan.run_dir) / "wandb"
    folders = {f"WANDB_{kind}_DIR": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "ARTIFACT")}
    with environment(folders | {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}):
        import wandb

        name = run_name(plan, steps)
        mode: Literal["offline", "online"] = "offline" if choice.offline else "online"
        settings = wandb.Settings(mode=mode, console="off")  # else it takes this process's own streams
        run = wandb.init(project=choice.project, name=name, dir=plan.run_dir, settings=settings)
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    return WandbLogger(name, plan.run_dir, offline=choice.offline, project=choice.project, experiment=run)


def create_mlflow(choice: schemas.MLflow, plan: Plan, steps: int) -> MLFlowLogger:
    """Start a run in the file store mlruns/; each resume starts another."""
    store = (Path(plan.run_dir).absolute() / "mlruns").as_uri()
    with environment({"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}):
        logger = MLFlowLogger(choice.experiment, run_name(plan, steps), store)
        _ = logger.experiment  # its run begins
    return logger


def set_rank(rank: int) -> None:
    """Tell Lightning whether this is rank 0: the fork server has imported it before anyone knew."""
    rank_zero_only.rank = rank  # type: ignore[attr-defined]


def run_name(plan: Plan, steps: int) -> str:
    return "/".join(filter(None, (plan.name, version(plan.resume, steps))))


def finish(logger: Logger, *, failed: bool) -> None:
    """End what its `finalize` leaves open for the next stage of a Trainer: wandb's run, and its process with it."""
    if isinstance(logger, WandbLogger):
        logger.experiment.finish(exit_code=int(failed))


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables that hold within, and no warning of Lightning's that a store is new."""
    logger = logging.getLogger("lightning.pytorch.loggers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with patch.dict(os.environ, values):
            yield
    finally:
        logger.setLevel(level)
