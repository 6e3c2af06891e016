"""One job, from its configuration to its printed result; `run` is the same from Python."""

import time
from dataclasses import asdict
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from lockstep import data, launch
from lockstep.build import ENGINES, plan_from
from lockstep.compose import compose_job
from lockstep.explain import explained
from lockstep.record import Metrics, save_metrics, table


def run(overrides: list[str] | None = None) -> Metrics:
    """Do what `python train.py OVERRIDES` does, and return what metrics.json holds.

    Raises:
        Refusal: an override, or a combination of them, that cannot be.
        RankFailed: a rank failed.
    """
    began = time.perf_counter()
    config, run_dir = compose_job(overrides or [])
    return execute(config, run_dir, began)


def execute(config: DictConfig, run_dir: Path, began: float) -> Metrics:
    """Build the plan, run it, and leave config.yaml and metrics.json in the run's folder.

    Args:
        began: the time.perf_counter() that total_seconds counts from.
    """
    plan = plan_from(config, run_dir)
    launch.check_launchable(plan)
    data.prepare(plan.data)
    place = launch.outside()
    speaks = place is None or place.rank == 0
    if speaks:
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise explained(error) from None
        OmegaConf.save(OmegaConf.create(asdict(plan)), run_dir / "config.yaml")
    metrics = launch.start(plan, ENGINES[plan.engine.name])
    metrics["total_seconds"] = time.perf_counter() - began
    if speaks:
        save_metrics(run_dir, metrics)
        print(f"\n{table(metrics)}\n\n  {run_dir}", flush=True)
    return metrics
