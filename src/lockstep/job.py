"""One job, from the words of its command to metrics.json; `run` is the same from Python.

In this order, each stage by what the one before has made: the configuration is composed, the plan built, the checkpoint
chosen; then the folder is made, the ranks are launched, the metrics written. `planning` makes a sentence of what goes
wrong in the first three, `execute` of what the disk refuses afterwards; the error of a rank stays as it is.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf, open_dict

from lockstep import data, schemas
from lockstep.build import plan_from
from lockstep.checkpoint.choice import choose_checkpoint
from lockstep.checkpoint.files import BEST, FOLDER, LAST, PREVIOUS
from lockstep.command_line.compose import compose_job, folder_given
from lockstep.command_line.hydra_errors import errors_as_config_errors
from lockstep.config_error import option_error
from lockstep.disk import disk_errors_as_config_errors, run_lock
from lockstep.files import remove_parts, save_text
from lockstep.launch import forkserver
from lockstep.launch.external_launcher import check_launchable, rank_from_env
from lockstep.launch.start import external_process_group, start_ranks
from lockstep.launch.topology import is_rank_zero
from lockstep.plan import Plan
from lockstep.run_files import CONFIG, FILES, METRICS, Metrics, clear_records, run_of, save_metrics
from lockstep.run_summary import run_summary
from lockstep.schemas import groups
from lockstep.schemas.engine import ENGINES
from lockstep.schemas.logger import tensorboard_of
from lockstep.targets.from_python import as_target, require_not_typed

if TYPE_CHECKING:
    from lockstep.launch.external_worker import ExternalRank

UNTYPED = schemas.Command()


def run(overrides: list[str] | None = None, **own: Any) -> Metrics:
    """Do what `python train.py OVERRIDES` does, and return what metrics.json holds.

    Args:
        own: by group (`model`, `data`, …) a class or a function of yours, a functools.partial of one with its
            arguments, or what its YAML file would hold.

    Raises:
        ConfigError: an override, or a combination of them, that cannot be.
        RankFailed: a rank failed.
    """
    began = time.perf_counter()
    words = overrides or []
    with planning(words):
        given = folder_given(words)
        plan = prepare(*with_own(own, words), given, schemas.Command(tuple(words)))
    return execute(plan, began)


def with_own(own: Mapping[str, Any], words: list[str]) -> tuple[DictConfig, Path]:
    """The configuration with the groups that are given from Python, and the folder."""
    for group in own.keys() - groups.OWN_CODE.keys():
        raise option_error("run", group, "no group of this name takes code of yours", groups.OWN_CODE)
    require_not_typed(own, words)
    config, run_dir = compose_job(words)
    with open_dict(config):
        for group, code in own.items():
            config[group] = as_target(group, code)
    return config, run_dir


def planning(overrides: Sequence[str]) -> AbstractContextManager[None]:
    """Around what makes a plan of overrides: whatever is wrong is a ConfigError that names the override."""
    return errors_as_config_errors(overrides, lambda words: plan_from(*compose_job(words)))


def prepare(config: DictConfig, run_dir: Path, folder_given: bool, command: schemas.Command = UNTYPED) -> Plan:
    """The plan of a configuration, with the checkpoint that it begins from.

    Args:
        run_dir: where Hydra would have it run.
        folder_given: the command says so; else a resumed run stays in its own.
        command: what was typed, for people.
    """
    plan = replace(plan_from(config, run_dir), command=command)
    check_launchable(plan.world)
    plan, damaged = choose_checkpoint(plan, folder_given)
    if damaged and is_rank_zero_of_job():
        torn = " and ".join(map(str, damaged))
        print(f"{torn}: damaged; resuming from {plan.ckpt_path}", file=sys.stderr, flush=True)
    return plan


def execute(plan: Plan, began: float, keep_finished: bool = False) -> Metrics:
    """Run a plan, in a folder that no other command uses, and leave config.yaml and metrics.json there.

    Args:
        began: the time.perf_counter() that total_seconds counts from.
        keep_finished: a run that is resumed and has nothing left to do is left as it is.
    """
    run_dir, first = Path(plan.run_dir), is_rank_zero_of_job()
    with disk_errors_as_config_errors(run_dir):
        if plan.ckpt_path is not None:
            from lockstep.checkpoint.reading import check_checkpoint  # with torch

            if check_checkpoint(plan, keep_finished):
                return finished_before(plan)
            if first:
                print(f"{'resuming from' if plan.train else 'testing'} {plan.ckpt_path}", flush=True)
        data.prepare(plan.data)
        with external_process_group(plan.world) as external, run_lock(run_dir) if first else nullcontext():
            if plan.engine.name == "both":
                metrics, verdict = run_both(plan, began, external)
            else:
                metrics, verdict = run_one(plan, began, external), ""
    if first:
        print(f"\n{run_summary(metrics)}\n{verdict}\n  {run_dir}", flush=True)
    return metrics


def finished_before(plan: Plan) -> Metrics:
    """What the run measured then."""
    path = Path(plan.run_dir) / METRICS
    path.touch()  # the table over a sweep is of the results since it began
    print(f"finished before: {plan.run_dir}", flush=True)
    metrics: Metrics = json.loads(path.read_text())
    return metrics


def run_one(plan: Plan, began: float, external: "ExternalRank | None") -> Metrics:
    """The plan by its engine."""
    leave_config(plan)
    metrics: Metrics = start_ranks(plan, ENGINES[plan.engine.name], external)
    metrics["total_seconds"] = time.perf_counter() - began
    if is_rank_zero_of_job():
        save_metrics(Path(plan.run_dir), metrics)
    return metrics


def run_both(plan: Plan, began: float, external: "ExternalRank | None") -> tuple[Metrics, str]:
    """The plan by Lightning, then by the raw engine, in folders of their own; the comparison's verdict, in words."""
    folder, engine = Path(plan.run_dir), plan.engine
    assert isinstance(engine, schemas.Raw)
    leave_config(plan)
    engines: dict[str, schemas.Engine] = {
        "lightning": schemas.Lightning("lightning"),
        "raw": replace(engine, name="raw"),
    }
    if rank_from_env() is None and not plan.world.in_process:
        forkserver.start_forkserver(*ENGINES.values())
    results = {}
    for name, own in engines.items():
        if is_rank_zero_of_job():
            print(f"engine={name}", flush=True)
        summary = plan.model_summary and name == "lightning"  # of the same net
        part = replace(plan, engine=own, run_dir=str(folder / name), model_summary=summary)
        results[name] = run_one(part, time.perf_counter(), external)
    metrics: Metrics = {**results["lightning"], "engine": "both"}
    metrics |= {f"{name}/train_seconds": result["train_seconds"] for name, result in results.items() if plan.train}
    if not is_rank_zero_of_job():
        return metrics, ""
    from lockstep.compare import compare

    comparison = compare(folder / "lightning", folder / "raw")
    comparison.save(folder)
    if tensorboard_of(plan) is not None:
        from lockstep.monitor.difference import write_difference  # with torch

        write_difference(plan, folder / "lightning", folder / "raw", comparison)
    metrics |= {
        "verdict": comparison.verdict,
        "within_tolerance": comparison.within_tolerance,
        "max_diff": comparison.max_diff,
    }
    metrics["total_seconds"] = time.perf_counter() - began
    save_metrics(folder, metrics)
    return metrics, f"\n{comparison.shown()}\n"


def leave_config(plan: Plan) -> None:
    """In the run's folder the plan as config.yaml, and nothing of an earlier run but what this one resumes from."""
    if not is_rank_zero_of_job():
        return
    folder = Path(plan.run_dir)
    folder.mkdir(parents=True, exist_ok=True)
    remove_parts(folder, FILES)
    remove_parts(folder / FOLDER, (LAST, PREVIOUS, BEST))
    if plan.train:  # else it tests what lies there
        goes_on_here = plan.ckpt_path is not None and run_of(Path(plan.ckpt_path)).is_relative_to(folder.resolve())
        clear_records(folder, keep_record=plan.resume or goes_on_here)
    save_text(folder / CONFIG, OmegaConf.to_yaml(OmegaConf.create(asdict(plan))))


def is_rank_zero_of_job() -> bool:
    """Whether this process prints and writes for the job."""
    return is_rank_zero(rank_from_env())
