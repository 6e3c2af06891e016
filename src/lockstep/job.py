"""One job, from its configuration to its printed result; `run` is the same from Python."""

import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from lockstep import choices, data, launch
from lockstep.build import plan_from
from lockstep.checkpoint.files import BEST, FOLDER, LAST, PREVIOUS
from lockstep.compare import compare
from lockstep.compose import compose_job, composed, folder_given
from lockstep.disk import held, writing_below
from lockstep.explain import explained
from lockstep.plan import Plan
from lockstep.record import CONFIG, FILES, METRICS, Metrics, clear_records, remove_parts, save_metrics, save_text, table
from lockstep.record_file import run_of
from lockstep.resume import run_folder
from lockstep.unforeseen import in_words

ENGINES = {"lightning": "lockstep.lit", "raw": "lockstep.raw"}
"""The module of each engine, by name: only the workers import it."""


def run(overrides: list[str] | None = None) -> Metrics:
    """Do what `python train.py OVERRIDES` does, and return what metrics.json holds.

    Raises:
        Refusal: an override, or a combination of them, that cannot be.
        RankFailed: a rank failed.
    """
    began = time.perf_counter()
    words = overrides or []
    config, own = compose_job(words)
    with in_words(words, composed):
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
    with writing_below(run_dir.absolute()):
        with in_words(overrides, lambda words: plan_from(*composed(words))):
            plan = plan_from(config, run_dir)
        launch.check_launchable(plan.world)
        if plan.ckpt_path is not None:
            from lockstep.checkpoint.reading import check_checkpoint  # with torch

            done = check_checkpoint(plan, keep_finished)
            if done:
                return finished_before(plan)
            if first_of_all():
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
    with launch.place_held(plan.world), held(run_dir) if first_of_all() else nullcontext():
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
    if launch.outside() is None and not plan.world.in_process:
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


def make_folder(plan: Plan) -> Path:
    """The run's folder."""
    folder = Path(plan.run_dir)
    try:
        if first_of_all():
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explained(error) from None
    return folder


def leave_config(plan: Plan) -> None:
    """In the run's folder the plan as config.yaml, and nothing of an earlier run but what this one goes on with."""
    if not first_of_all():
        return
    folder = make_folder(plan)
    remove_parts(folder, FILES)
    remove_parts(folder / FOLDER, (LAST, PREVIOUS, BEST))
    if plan.train:  # else it tests what lies there
        goes_on_here = plan.ckpt_path is not None and run_of(Path(plan.ckpt_path)).is_relative_to(folder.resolve())
        clear_records(folder, keep_record=plan.resume or goes_on_here)
    save_text(folder / CONFIG, OmegaConf.to_yaml(OmegaConf.create(asdict(plan))))


def first_of_all() -> bool:
    """Whether this process speaks for the job."""
    return launch.speaks(launch.outside())
