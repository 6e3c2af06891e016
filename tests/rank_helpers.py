"""An engine for tests: every rank calls the function that RANK_TASK names, `module:function`, as an engine's `run`."""

import importlib
import json
import os
import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch.distributed as dist

import lockstep.engine
import lockstep.raw.run
from lockstep.base.errors import TrainingInterrupted
from lockstep.command.job import raw_job, write_config
from lockstep.launch.start import start_ranks
from lockstep.launch.topology import RankContext, Stop
from lockstep.plan import schemas
from lockstep.plan.plan import Plan
from lockstep.runs.run_files import METRICS, Metrics

ALONE = RankContext(rank=0, world_size=1, local_rank=0, local_world_size=1)


def run_raw(plan: Plan, context: RankContext) -> Metrics:
    """Run a plan by the raw engine, whose ranks take no plan."""
    return lockstep.raw.run.run(raw_job(plan), context)


ENGINES = {"lightning": lockstep.engine.run, "raw": run_raw}


class StopAfter(Stop):
    """A request to stop after this batch."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.last = batches

    def should_stop(self, batches: int) -> bool:
        return batches >= self.last


def stop_after(batches: int, plan: Plan, context: RankContext) -> Plan:
    """Stop a run on a rank after so many batches; return the plan that resumes it. at-the-stop.ckpt stays."""
    with pytest.raises(TrainingInterrupted):
        lockstep.engine.run(plan, replace(context, stop=StopAfter(batches)))
    last = Path(plan.run_dir) / "checkpoints" / "last.ckpt"
    if context.rank == 0:
        os.link(last, last.with_name("at-the-stop.ckpt"))
    dist.barrier()
    return replace(plan, ckpt_path=str(last), resume=True)


def run(plan: Plan, context: RankContext) -> Metrics:
    module, _, name = os.environ["RANK_TASK"].partition(":")
    metrics: Metrics = getattr(importlib.import_module(module), name)(plan, context)
    return metrics


def on_ranks(plan: Plan, task: Callable[[Plan, RankContext], Metrics]) -> Metrics:
    """Call the task on every rank of the plan, in processes of their own; returns what rank 0's call returns."""
    with patch.dict(os.environ, RANK_TASK=f"{task.__module__}:{task.__name__}"):
        metrics: Metrics = start_ranks(plan, __name__)
    return metrics


def wrong_on(devices: int, *checks: Callable[[int, int], list[str]]) -> Metrics:
    """Call checks with the rank and the number of ranks; return what is wrong on any of them, by the check's name."""
    from tests.inspections import plan_here  # with Hydra, which ranks do not need

    with tempfile.TemporaryDirectory() as folder:
        overrides = ["strategy=ddp_spawn", f"devices={devices}", "batch_size=12", "accelerator=cpu"]
        names = " ".join(f"{check.__module__}:{check.__name__}" for check in checks)
        with patch.dict(os.environ, RANK_CHECKS=names):
            return on_ranks(plan_here(overrides, Path(folder)), run_checks)


def run_checks(plan: Plan, context: RankContext) -> Metrics:
    names = [name.partition(":") for name in os.environ["RANK_CHECKS"].split()]
    checks = {name: getattr(importlib.import_module(module), name) for module, _, name in names}
    results: list[dict[str, list[str]]] = [{}] * plan.world_size
    mine = {name: check(context.rank, plan.world_size) for name, check in checks.items()}
    dist.all_gather_object(results, mine)
    return {name: "; ".join(wrong for each in results for wrong in each[name]) for name in checks}


def run_named(plans: Mapping[str, Plan], folder: Path, run_one: Callable[[str, Plan, RankContext], object]) -> None:
    """Call a function for each plan of one world, with its name and rank: in this process, or by one start of ranks."""
    for plan in plans.values():
        Path(plan.run_dir).mkdir(parents=True, exist_ok=True)
    first = next(iter(plans.values()))
    if first.strategy.distributed:
        (folder / "plans").write_bytes(pickle.dumps((run_one, dict(plans))))
        on_ranks(replace(first, run_dir=str(folder)), run_pickled)
    else:
        for name, plan in plans.items():
            run_one(name, plan, ALONE)


def run_pickled(plan: Plan, context: RankContext) -> Metrics:
    run_one, plans = pickle.loads((Path(plan.run_dir) / "plans").read_bytes())
    for name, each in plans.items():
        run_one(name, each, context)
    return {}


def run_plans(plans: Sequence[Plan], folder: Path) -> None:
    """Run plans of one world, each in its `run_dir`."""
    run_named({plan.run_dir: plan for plan in plans}, folder, run_by_name)


def run_by_name(_: str, plan: Plan, context: RankContext) -> None:
    run_plan(plan, context)


def trained(engine: str, plan: Plan, folder: str | None = None) -> Metrics:
    """Run the plan by one engine in this process, in a folder of that name."""
    return ENGINES[engine](with_engine(plan, engine, Path(plan.run_dir) / (folder or engine)), ALONE)


def run_plan(plan: Plan, context: RankContext) -> None:
    """Run a plan, and leave all that a command leaves."""
    if context.rank == 0:
        write_config(plan)
    metrics = ENGINES[plan.engine.name](plan, context)
    if context.rank == 0:
        (Path(plan.run_dir) / METRICS).write_text(json.dumps(metrics))


LOOPS = {"fast": True, "own": False}
"""Whether each loop of the Lightning engine is the fast one."""


def by_loops(plan: Plan, context: RankContext) -> Metrics:
    """On a rank: the plan by the fast loop and by Lightning's own, in folders `fast` and `own`, with the metrics."""
    for name, fast in LOOPS.items():
        folder = Path(plan.run_dir) / name
        folder.mkdir(parents=True, exist_ok=True)
        engine = schemas.Lightning("lightning", fast_loop=fast)
        metrics = lockstep.engine.run(replace(plan, engine=engine, run_dir=str(folder)), context)
        if context.rank == 0:
            (folder / METRICS).write_text(json.dumps(metrics))
    return {}


def by_engines(plan: Plan, context: RankContext) -> Metrics:
    """On a rank: the plan by each engine, in a folder of its name, with the metrics that it returns."""
    for name, engine in ENGINES.items():
        folder = Path(plan.run_dir) / name
        metrics = engine(with_engine(plan, name, folder, plan.engine.gradient_sync), context)
        if context.rank == 0:
            (folder / METRICS).write_text(json.dumps(metrics))
    return {}


def with_engine(plan: Plan, name: str, folder: Path, gradient_sync: str = "ddp") -> Plan:
    """The plan by another engine, in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    lightning = schemas.Lightning("lightning", fast_loop=True)
    engine = lightning if name == "lightning" else schemas.Raw("raw", gradient_sync)  # type: ignore[arg-type]
    return replace(plan, engine=engine, run_dir=str(folder))
