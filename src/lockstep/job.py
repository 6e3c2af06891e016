"""One job, from its configuration to its printed result; `run` is the same from Python."""

import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from lockstep import data, launch, schemas
from lockstep.build import plan_from
from lockstep.checkpoint.files import BEST, FOLDER, LAST, PREVIOUS
from lockstep.command_line.compose import compose_job, composed, folder_given
from lockstep.command_line.hydra_errors import explained
from lockstep.command_line.unforeseen import errors_as_config_errors
from lockstep.disk import disk_errors_as_config_errors, run_lock
from lockstep.files import remove_parts, save_text
from lockstep.plan import Plan
from lockstep.record.file import run_of
from lockstep.resume import run_folder
from lockstep.run_files import CONFIG, FILES, METRICS, Metrics, clear_records, save_metrics
from lockstep.schemas.engine import ENGINES
from lockstep.text_table import metrics_text


def run(overrides: list[str] | None = None) -> Metrics:
    """Do what `python train.py OVERRIDES` does, and return what metrics.json holds.

    Raises:
        ConfigError: an override, or a combination of them, that cannot be.
        RankFailed: a rank failed.
    """
    began = time.perf_counter()
    words = overrides or []
    config, own = compose_job(words)
    with errors_as_config_errors(words, composed):
        run_dir = run_folder(config.resume, config.name, own, folder_given(words))
    return execute(config, run_dir, began, overrides=words)


def execute(
    config: DictConfig, run_dir: Path, began: float, keep_finished: bool = False, overrides: Sequence[str] = ()
) -> Metrics:
    """Build the plan, run it, and leave config.yaml and metrics.json in the run's folder.

    Args:
        began: the time.perf_counter() that total_seconds counts from.
        keep_finished: a run that is resumed and has nothing left to do is left as it is.
        overrides: what the configuration was composed of, for what is wrong with it.
    """
    with disk_errors_as_config_errors(run_dir.absolute()):
        with errors_as_config_errors(overrides, lambda words: plan_from(*composed(words))):
            plan = plan_from(config, run_dir)
        launch.check_launchable(plan.world)
        if plan.ckpt_path is not None:
            from lockstep.checkpoint.reading import check_checkpoint  # with torch

            done = check_checkpoint(plan, keep_finished)
            if done:
                return finished_before(plan)
            if is_rank_zero_of_job():
                print(f"{'resuming from' if plan.train else 'testing'} {plan.ckpt_path}", flush=True)
        data.prepare(plan.data)
        return run_plan(plan, began)


def finished_before(plan: Plan) -> Metrics:
    """What the run measured then."""
    path = Path(plan.run_dir) / METRICS
    path.touch()  # the table over a sweep is of the results since it began
    print(f"finished before: {plan.run_dir}", flush=True)
    metrics: Metrics = json.loads(path.read_text())
    return metrics


def run_plan(plan: Plan, began: float) -> Metrics:
    """By one engine or both, in a folder that no other command uses, and print the result."""
    run_dir = make_folder(plan)
    with launch.external_process_group(plan.world), run_lock(run_dir) if is_rank_zero_of_job() else nullcontext():
        metrics, verdict = run_both(plan, began) if plan.engine.name == "both" else (run_one(plan, began), "")
    if is_rank_zero_of_job():
        print(f"\n{metrics_text(metrics)}\n{verdict}\n  {run_dir}", flush=True)
    return metrics


def run_one(plan: Plan, began: float) -> Metrics:
    """The plan by its engine."""
    leave_config(plan)
    metrics: Metrics = launch.start(plan, ENGINES[plan.engine.name])
    metrics["total_seconds"] = time.perf_counter() - began
    if is_rank_zero_of_job():
        save_metrics(Path(plan.run_dir), metrics)
    return metrics


def run_both(plan: Plan, began: float) -> tuple[Metrics, str]:
    """The plan by Lightning, then by the raw engine, in folders of their own; the comparison's verdict, in words."""
    folder, engine = Path(plan.run_dir), plan.engine
    assert isinstance(engine, schemas.Raw)
    leave_config(plan)
    engines: dict[str, schemas.Engine] = {
        "lightning": schemas.Lightning("lightning"),
        "raw": replace(engine, name="raw"),
    }
    if launch.rank_from_env() is None and not plan.world.in_process:
        launch.start_forkserver(*ENGINES.values())
    results = {}
    for name, own in engines.items():
        if is_rank_zero_of_job():
            print(f"engine={name}", flush=True)
        part = replace(plan, engine=own, run_dir=str(folder / name))
        results[name] = run_one(part, time.perf_counter())
    metrics: Metrics = {**results["lightning"], "engine": "both"}
    metrics |= {f"{name}/train_seconds": result["train_seconds"] for name, result in results.items() if plan.train}
    if not is_rank_zero_of_job():
        return metrics, ""
    from lockstep.compare import compare

    comparison = compare(folder / "lightning", folder / "raw")
    comparison.save(folder)
    metrics |= {
        "verdict": comparison.verdict,
        "within_tolerance": comparison.within_tolerance,
        "max_diff": comparison.max_diff,
    }
    metrics["total_seconds"] = time.perf_counter() - began
    save_metrics(folder, metrics)
    return metrics, f"\n{comparison.text()}\n"


def make_folder(plan: Plan) -> Path:
    """The run's folder."""
    folder = Path(plan.run_dir)
    try:
        if is_rank_zero_of_job():
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explained(error) from None
    return folder


def leave_config(plan: Plan) -> None:
    """In the run's folder the plan as config.yaml, and nothing of an earlier run but what this one resumes from."""
    if not is_rank_zero_of_job():
        return
    folder = make_folder(plan)
    remove_parts(folder, FILES)
    remove_parts(folder / FOLDER, (LAST, PREVIOUS, BEST))
    if plan.train:  # else it tests what lies there
        goes_on_here = plan.ckpt_path is not None and run_of(Path(plan.ckpt_path)).is_relative_to(folder.resolve())
        clear_records(folder, keep_record=plan.resume or goes_on_here)
    save_text(folder / CONFIG, OmegaConf.to_yaml(OmegaConf.create(asdict(plan))))


def is_rank_zero_of_job() -> bool:
    """Whether this process prints and writes for the job."""
    return launch.is_rank_zero(launch.rank_from_env())
