"""One job, from overrides to metrics.json: `run` from Python, the other functions for the command line too.

Compose the configuration, build the plan, choose the checkpoint; then create the folder, launch the ranks, write the
metrics. `planning` makes a sentence of any error of the first three, `execute` of the disk's errors in the others.
"""

import json
import shlex
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf, open_dict

from lockstep.base.config_error import ConfigError, require
from lockstep.base.files import save_json, short_path
from lockstep.command.build import plan_from
from lockstep.command.compose import compose_job, replacing, sets_folder, without_plus
from lockstep.command.hydra_errors import planning
from lockstep.command.run_result import RunResult, run_summary, run_title
from lockstep.launch.disk import disk_errors_as_config_errors, run_lock
from lockstep.launch.external_launcher import check_launchable, is_rank_zero
from lockstep.launch.start import external_process_group, start_ranks
from lockstep.plan import schemas
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.groups import TARGETS, is_below, key_of
from lockstep.plan.schemas.run import ENGINES, ONCE
from lockstep.plan.schemas.target import tensorboard_of
from lockstep.plan.targets.from_python import Code, EngineName, Precision, words_of
from lockstep.plan.targets.locate import FROM_DATA, importing, targets_within
from lockstep.plan.world import Launchable
from lockstep.raw import Job
from lockstep.runs.checkpoint.files import choose_checkpoint, typed_words
from lockstep.runs.compare import compare
from lockstep.runs.git_commit import git_commit
from lockstep.runs.report import reported
from lockstep.runs.run_files import METRICS, Metrics, clear_records, removed_if_refused, run_of, save_config
from lockstep.strategies import StrategyName

TESTED = (
    *("--config-dir", "hydra.searchpath", *TARGETS, "experiment", "name", "seed"),
    *("batch_size", "batch_size_per_device", "precision", "memory_format", "sync_batchnorm", "loss_reduction"),
    "trainer.limit_test_batches",
)
"""The keys that a test of a checkpoint takes from the command of its run."""


def run(
    overrides: Sequence[str] = (),
    *,
    model: Code | None = None,
    data: Code | None = None,
    optimizer: Code | None = None,
    scheduler: Code | None = None,
    logger: Code | list[str] | None = None,
    callbacks: Code | list[str] | None = None,
    experiment: str | list[str] | None = None,
    strategy: StrategyName | None = None,
    engine: EngineName | None = None,
    devices: int | Literal["auto"] | None = None,
    accelerator: Literal["auto", "cpu", "gpu"] | None = None,
    precision: Precision | None = None,
    max_epochs: int | None = None,
    batch_size: int | None = None,
    gradient_clip_val: float | None = None,
    seed: int | None = None,
    train: bool | None = None,
    test: bool | Literal["best"] | None = None,
    name: str | None = None,
    ckpt_path: str | Path | None = None,
    resume: bool | None = None,
) -> RunResult:
    """Do what `python train.py OVERRIDES` does, and return the metrics, the folder, the history and the module.

    Keywords are the common keys of the command line, left to the configuration where they are None. Other keys are
    overrides: `run(["optimizer.lr=0.1"], devices=2)`. A keyword replaces the overrides of its key.

    Raises:
        ConfigError: an override or a keyword, or a combination of them, is invalid.
        RankFailed: a rank failed.
    """
    began, passed = time.perf_counter(), {key: value for key, value in locals().items() if value is not None}
    if importing:  # each rank would import the module, too, and start a run
        reason = f"{importing[0]} calls lockstep.run as it is imported"
        raise ConfigError(f"{reason}; call it below if __name__ == '__main__'.")
    passed.pop("overrides")
    words, targets = words_of(passed)
    typed = [*overrides, *words]
    if sweeping := {"-m", "--multirun"} & {*typed}:
        raise ConfigError(f"{sweeping.pop()}: run(…) runs one job; call it once for each, or write train.py -m ….")
    with planning(typed):
        words = with_earlier_words(typed)
        config, run_dir = compose_job(words)
        with open_dict(config):
            config.update(targets)
        plan = prepare(config, run_dir, sets_folder(words), schemas.Command(tuple(words)))
    return RunResult(execute(plan, began), Path(plan.run_dir), None if plan.train else plan.ckpt_path)


def with_earlier_words(words: Sequence[str]) -> list[str]:
    """Return what was typed for the run that `resume=true` resumes, followed by the words, which replace the same keys.

    For a checkpoint that `train=false` tests, what was typed about the module and its data. In a sweep, which has to
    name its folder to resume, the words are returned alone: it resumes by the whole command.
    """
    words = [each for word in words for each in replacing(without_plus(word))]
    words = [word for place, word in enumerate(words) if word[:1] != "~" or word not in words[:place]]
    typed = {key_of(word): word.partition("=")[2].lower() for word in words}
    resumes, tests = typed.get("resume") == "true", typed.get("train") == "false" and "ckpt_path" in typed
    sweeps, hint = bool({"-m", "--multirun"} & {*words}), "resume=true hydra.sweep.dir=FOLDER"
    fits = not (sweeps and resumes) or sets_folder(words)
    require(fits, "resume", True, "a sweep resumes in its own folder", hint)
    if sweeps or not (resumes or tests):
        return words
    try:
        config, run_dir = compose_job(words)
    except Exception:  # some words may need those that were typed for the earlier run
        keys = ("name", "hydra.run.dir", "ckpt_path")
        config, run_dir = compose_job([word for word in words if key_of(word) in keys])
    earlier = typed_words(run_dir if resumes and sets_folder(words) else None, config.name, config.ckpt_path)
    if tests:
        earlier = [word for word in earlier if is_below(key_of(word), TESTED)]
    others = ("resume", "ckpt_path", "train", "hydra.run", "hydra.sweep", "hydra.mode")
    replaced = tuple(f"{key}." for key in (*map(key_of, words), *others))
    return [*(word for word in earlier if not f"{key_of(word)}.".startswith(replaced)), *words]


def prepare(config: DictConfig, run_dir: Path, has_folder: bool, command: schemas.Command | None = None) -> Plan:
    """Return the plan of a configuration, with the checkpoint to begin from.

    `has_folder`: the command sets `run_dir`. Otherwise a resumed run stays in the folder of the earlier run.
    """
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(git_commit if is_rank_zero() else str)
        plan = plan_from(config, run_dir)
        plan = replace(plan, command=replace(command or schemas.Command(), commit=commit.result()))
    check_launchable(plan.world)
    fits = plan.engine.name == "lightning" or plan.ckpt_path is None  # no rule of a plan, by which `load` reads a net
    require(fits, "ckpt_path", plan.ckpt_path, ONCE, "ckpt_path=null, or engine=lightning")
    plan, damaged = choose_checkpoint(plan, has_folder)
    if is_rank_zero():  # a resumed run says the folder with its checkpoint
        print(run_title(vars(plan)) + ("" if plan.resume else f": {short_path(plan.run_dir)}"), flush=True)
    if damaged and is_rank_zero():
        skipped = [f"{path}: {'damaged' if path.suffix else reason}" for path, reason in damaged.items()]
        print(*skipped, f"resuming from {plan.ckpt_path}", sep="; ", file=sys.stderr, flush=True)
    return plan


def execute(plan: Plan, began: float, keep_finished: bool = False) -> Metrics:
    """Run a plan in its folder, which no other command may use meanwhile; write config.yaml and metrics.json there.

    Args:
        began: the time.perf_counter() that total_seconds counts from.
        keep_finished: return the metrics of a resumed run that is finished already, without running it.
    """
    run_dir, is_first = Path(plan.run_dir), is_rank_zero()
    with disk_errors_as_config_errors(run_dir):
        if plan.ckpt_path is not None:
            from lockstep.runs.checkpoint.reading import check_checkpoint  # with torch

            if check_checkpoint(plan, keep_finished):
                (run_dir / METRICS).touch()  # a sweep's table has the results that are newer than its start
                print(f"finished before: {run_dir}", flush=True)
                metrics: Metrics = json.loads((run_dir / METRICS).read_text())
                return metrics
        if is_first and plan.ckpt_path is not None:
            print(f"{'resuming from' if plan.train else 'testing'} {plan.ckpt_path}", flush=True)
        with (
            external_process_group(plan.world),
            run_lock(run_dir) if is_first else nullcontext(),
            removed_if_refused(run_dir) if is_first else nullcontext(),
            reported(run_dir) if is_first else nullcontext(),
        ):
            if plan.engine.name == "both":
                metrics, verdict = _run_both(plan, began)
            else:
                if plan.engine.name == "raw" and is_first:
                    print("engine=raw keeps the record, the results and last.ckpt: no curves, pictures or best.ckpt")
                metrics, verdict = _run_engine(plan, began), ""
    if is_first:
        shows_board = plan.train and tensorboard_of(plan) and plan.engine.name != "raw" and not keep_finished
        board = f"tensorboard --logdir {shlex.quote(str(short_path(run_dir)))}" if shows_board else ""
        print(f"\n{run_summary(metrics, next=board)}\n{verdict}\n  {run_dir}", flush=True)
    return metrics


def _run_engine(plan: Plan, began: float) -> Metrics:
    if plan.engine.name == "raw":
        plan = repeatable(plan)
    write_config(plan)
    metrics: Metrics = start_ranks(for_ranks(plan), ENGINES[plan.engine.name])
    metrics |= {"commit": plan.command.commit} if plan.command.commit else {}
    metrics["total_seconds"] = time.perf_counter() - began
    if is_rank_zero():
        save_json(Path(plan.run_dir) / METRICS, metrics)
    return metrics


def _run_both(plan: Plan, began: float) -> tuple[Metrics, str]:
    """Run the plan by Lightning's own loop, then by the raw engine, each in a subfolder; return the verdict, too."""
    folder = Path(plan.run_dir)
    write_config(plan)
    plan = repeatable(plan)
    lightning = replace(plan, engine=schemas.Lightning("lightning", False), run_dir=str(folder / "lightning"))
    engine, (strategy, devices) = schemas.Raw("raw", plan.engine.gradient_sync), plan.strategy.mirrored(plan)
    raw = replace(plan, engine=engine, strategy=strategy, devices=devices, run_dir=str(folder / "raw"))
    in_place = f"strategy={strategy.name} devices={devices}, in place of strategy={plan.strategy.name}"
    results = {}
    for each in (lightning, raw):
        if is_rank_zero():
            note = f" by {in_place}" if each.strategy is not plan.strategy else ""
            print(f"engine={each.engine.name}{note}", flush=True)
        results[each.engine.name] = _run_engine(each, time.perf_counter())
    metrics: Metrics = {**results["lightning"], "engine": "both"}
    metrics |= {f"{name}/train_seconds": result["train_seconds"] for name, result in results.items() if plan.train}
    if not is_rank_zero():
        return metrics, ""
    comparison = compare(folder / "lightning", folder / "raw")
    comparison.save(folder)
    metrics |= {name: getattr(comparison, name) for name in ("verdict", "within_tolerance", "max_diff")}
    metrics["total_seconds"] = time.perf_counter() - began
    save_json(folder / METRICS, metrics)
    note = f"\nraw ran {in_place}" if strategy is not plan.strategy else ""
    return metrics, f"\n{comparison.text()}{note}\n"


def repeatable(plan: Plan) -> Plan:
    """Return a plan whose last bits are the same in both engines: one memory layout, and on a GPU one order of sums."""
    trainer, memory_format = plan.trainer, plan.memory_format
    if plan.accelerator == "gpu" and trainer.deterministic is None:
        trainer = replace(trainer, deterministic="warn")
    return replace(plan, trainer=trainer, memory_format="contiguous" if memory_format == "auto" else memory_format)


def write_config(plan: Plan) -> None:
    """Write the plan as config.yaml, and remove an earlier run's files but those that this run resumes from."""
    if not is_rank_zero():
        return
    folder = Path(plan.run_dir)
    folder.mkdir(parents=True, exist_ok=True)
    if plan.train:  # otherwise it tests the net of this folder, perhaps
        resumes_here = plan.ckpt_path is not None and run_of(Path(plan.ckpt_path)).is_relative_to(folder.resolve())
        clear_records(folder, keep_record=plan.resume or resumes_here)
    save_config(folder, OmegaConf.to_yaml(config_of(plan)), plan.command.words, plan.command.swept)


def config_of(plan: Plan) -> Any:
    """Return the composed configuration, with what the inspection tells, and the engine and strategy of this run."""
    config = OmegaConf.create(plan.config)
    config.engine = {**asdict(plan.engine)}  # one of the two of engine=both, perhaps by another strategy
    if config.strategy.name != plan.strategy.name:
        config.strategy, config.devices = {**vars(plan.strategy)}, plan.devices
    config.batch_size, config.memory_format = config.batch_size or plan.batch_size, plan.memory_format
    config.trainer.deterministic = plan.trainer.deterministic
    model: Any = plan.model.call
    for path in ((), *targets_within(model)):
        node, call = reduce(getitem, path, config.model), reduce(getitem, path, model)
        node.update({name: call[name] for name in FROM_DATA if name in call and name not in node})  # Hydra needs them
    return config


def for_ranks(plan: Plan) -> Launchable:
    """Return what the ranks of the plan's engine are started with."""
    return raw_job(plan) if plan.engine.name == "raw" else plan


def raw_job(plan: Plan) -> Job:
    """Return what a rank of engine=raw knows of a plan: values that are typed, and none that is computed from them."""
    from lockstep.runs.checkpoint.content import saved_plan  # with torch

    config = config_of(plan)
    if config.devices != OmegaConf.create(plan.config).devices:  # in place of a strategy that counts its devices
        config.batch_size, config.batch_size_per_device, config.scale_lr = plan.batch_size, None, False
        if plan.model.optimizer is not None and config.get("optimizer"):
            config.optimizer.lr = plan.model.optimizer["lr"]
    return Job(plan.world, OmegaConf.to_yaml(config), plan.summary(), saved_plan(plan))
