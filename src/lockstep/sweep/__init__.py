"""A sweep: every job in a folder of its own, a job that cannot be or fails leaves its reason there, the rest go on."""

import json
import sys
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from lockstep.launch import RankFailed
from lockstep.record import METRICS, Metrics
from lockstep.refusal import Refusal

UNFINISHED = "unfinished.json"
OWN_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


def in_sweep() -> bool:
    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def report_unfinished(config: DictConfig, run_dir: Path, error: Refusal | RankFailed) -> None:
    """Say at once why this job of the sweep has no result, and leave the reason in its folder for the table.

    Hydra's own sweeper wants no value back and would end the sweep at an error. Others (Optuna and the like) have a way
    to deal with a job that failed: they get the error.
    """
    job = HydraConfig.get()
    status = "refused" if isinstance(error, Refusal) else "failed"
    sys.stdout.flush()
    print(f"job {job.job.num} {status}: {error}", file=sys.stderr, flush=True)
    left = {"status": status, "reason": str(error), "config": OmegaConf.to_container(config)}
    (run_dir / UNFINISHED).write_text(json.dumps(left, indent=2) + "\n")
    if job.sweeper._target_ != OWN_SWEEPER:
        raise error


def finished_before(run_dir: Path, max_epochs: object) -> Metrics | None:
    """What a job measured that was done before its sweep was resumed; None if there is something left to do."""
    path = run_dir / METRICS
    metrics: Metrics = json.loads(path.read_text()) if path.is_file() else {}
    if not isinstance(max_epochs, int) or int(metrics.get("epochs", 0)) < max_epochs:
        return None
    path.touch()  # the table is of the results since the sweep began
    print(f"job {HydraConfig.get().job.num}: finished before", flush=True)
    return metrics


def clear_results(run_dir: Path, keep_metrics: bool) -> None:
    """Remove what an earlier run left in the same folder, so that a result there is this run's."""
    for name in (UNFINISHED,) if keep_metrics else (METRICS, UNFINISHED):
        (run_dir / name).unlink(missing_ok=True)
