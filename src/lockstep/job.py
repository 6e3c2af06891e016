"""One job, from its configuration to its printed result; `run` is the same from Python."""

import time
from dataclasses import asdict, replace
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from lockstep import choices, data, launch
from lockstep.build import plan_from
from lockstep.compare import compare
from lockstep.compose import compose_job, folder_given
from lockstep.disk import writing_below
from lockstep.explain import explained
from lockstep.plan import Plan
from lockstep.record import Metrics, clear_records, save_metrics, save_text, table
from lockstep.resume import run_folder

ENGINES = {"lightning": "lockstep.lit", "raw": "lockstep.raw"}
"""The module of each engine, by name: only the workers import it."""


def run(overrides: list[str] | None = None) -> Metrics:
    """Do what `python train.py OVERRIDES` does, and return what metrics.json holds.

    Raises:
        Refusal: an override, or a combination of them, that cannot be.
        RankFailed: a rank failed.
    """
    began = time.perf_counter()
    config, own = compose_job(overrides or [])
    run_dir = run_folder(config.resume, config.name, own, folder_given(overrides or []))
    return execute(config, run_dir, began)


def execute(config: DictConfig, run_dir: Path, began: float) -> Metrics:
    """Build the plan, run it, and leave config.yaml and metrics.json in the run's folder.

    Args:
        began: the time.perf_counter() that total_seconds counts from.
    """
    with writing_below(run_dir.absolute()):
        return _execute(config, run_dir, began)


def _execute(config: DictConfig, run_dir: Path, began: float) -> Metrics:
    plan = plan_from(config, run_dir)
    launch.check_launchable(plan.world)
    if plan.ckpt_path is not None:
        from lockstep.checkpoint.reading import check_checkpoint  # with torch

        check_checkpoint(plan)
        if first_of_all():
            print(f"{'resuming from' if plan.train else 'testing'} {plan.ckpt_path}", flush=True)
    data.prepare(plan.data)
    with launch.place_held(plan.world):
        metrics, verdict = run_both(plan, began) if plan.engine.name == "both" else (run_one(plan, began), "")
    if first_of_all():
        print(f"\n{table(metrics)}\n{verdict}\n  {run_dir}", flush=True)
    return metrics


def run_one(plan: Plan, began: float) -> Metrics:
    """The plan by its engine."""
    leave_config(plan)
    metrics: Metrics = launch.start(plan, ENGINES[plan.engine.name])
    metrics["total_seconds"] = time.perf_counter() - began
    if first_of_all():
        save_metrics(Path(plan.run_dir), metrics)
    return metrics


def run_both(plan: Plan, began: float) -> tuple[Metrics, str]:
    """The plan by Lightning, then by the raw engine, in folders of their own; the comparison's verdict, in words."""
    folder, engine = Path(plan.run_dir), plan.engine
    assert isinstance(engine, choices.Raw)
    leave_config(plan)
    engines: dict[str, choices.Engine] = {
        "lightning": choices.Lightning("lightning"),
        "raw": replace(engine, name="raw"),
    }
    if launch.outside() is None:
        launch.warm_up(*ENGINES.values())
    results = {}
    for name, own in engines.items():
        if first_of_all():
            print(f"engine={name}", flush=True)
        part = replace(plan, engine=own, run_dir=str(folder / name))
        results[name] = run_one(part, time.perf_counter())
    metrics: Metrics = {**results["lightning"], "engine": "both"}
    metrics |= {f"{name}/train_seconds": result["train_seconds"] for name, result in results.items() if plan.train}
    if not first_of_all():
        return metrics, ""
    comparison = compare(folder / "lightning", folder / "raw")
    comparison.save(folder)
    metrics |= {"verdict": comparison.verdict, "as_owed": comparison.as_owed, "apart_by": comparison.largest}
    metrics["total_seconds"] = time.perf_counter() - began
    save_metrics(folder, metrics)
    return metrics, f"\n{comparison.text()}\n"


def leave_config(plan: Plan) -> None:
    """The run's folder, and in it the plan as config.yaml."""
    if not first_of_all():
        return
    folder = Path(plan.run_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explained(error) from None
    if plan.train:  # else it tests what lies there
        clear_records(folder, keep_record=plan.resume)
    save_text(folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(asdict(plan))))


def first_of_all() -> bool:
    """Whether this process speaks for the job."""
    return launch.speaks(launch.outside())
