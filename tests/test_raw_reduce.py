"""What ranks send: each method of averaging gradients against the mean by hand, tensors and messages of any size."""

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from lockstep.compare import compare
from lockstep.config_error import ConfigError
from lockstep.launch.topology import RankContext
from lockstep.parallel.messages import all_gather_bytes, all_gather_json, gather_bytes
from lockstep.plan import Plan
from lockstep.raw.step import METHODS, buckets, ring_sum
from lockstep.run_files import Metrics
from tests.conftest import MakePlan
from tests.inspections import plan_here
from tests.rank_helpers import ENGINES, on_ranks, run_plans, with_engine


def three_gradients(rank: int, world: int) -> list[str]:
    """Rank r has r+1 times 12, 24, 36 …: W ranks sum to W(W+1)/2 times that, and the mean is a whole number."""
    wrong, shapes = [], [(2, 3), (), (5,)]
    for method, average in {**METHODS, "buckets": buckets}.items():
        values = [12.0 * torch.arange(1.0, torch.Size(shape).numel() + 1).view(shape) for shape in shapes]
        gradients = [(rank + 1) * value for value in values]
        average(gradients)
        right = [torch.equal(mean, value * (world + 1) / 2) for mean, value in zip(gradients, values, strict=True)]
        wrong += [] if all(right) else [method]
    return wrong


def ring_of_any_size(rank: int, world: int) -> list[str]:
    """Sizes below and above the world, not its multiples, and none: number i of rank r is 10·i + r."""
    wrong = []
    for size in (0, 1, 2, 3, 5, 7, 64, 1001):
        for dtype in (torch.float32, torch.float64, torch.int64, torch.int32):
            tensor = (10 * torch.arange(size) + rank).to(dtype)
            ring_sum(tensor)
            expected = [10 * world * index + world * (world - 1) // 2 for index in range(size)]
            wrong += [] if tensor.tolist() == expected else [f"{size} {dtype}"]
    return wrong


def messages_of_any_length(rank: int, world: int) -> list[str]:
    messages = [b"", b"\x00\xff" * 5000, b"one\x00"][:world]
    wrong = [] if gather_bytes(messages[rank]) == (messages if rank == 0 else []) else ["gather"]
    return wrong + ([] if all_gather_bytes(messages[rank]) == messages else ["all_gather"])


def calls_of_two_kinds(rank: int, world: int) -> list[str]:
    """As where one rank gathers tensors in an evaluation, and the others, without samples, are at its end already."""
    try:
        return [str(all_gather_json("(2, 4)" if rank == 0 else []))]
    except ConfigError:
        return []


CHECKS = [three_gradients, ring_of_any_size, messages_of_any_length, calls_of_two_kinds]


def all_checks(plan: Plan, context: RankContext) -> Metrics:
    """On a rank: return what is wrong on any rank, by check."""
    results: list[dict[str, list[str]]] = [{}] * plan.world_size
    dist.all_gather_object(results, {check.__name__: check(context.rank, plan.world_size) for check in CHECKS})
    return {check.__name__: "; ".join(wrong for each in results for wrong in each[check.__name__]) for check in CHECKS}


@cache
def wrong_on(devices: int) -> Metrics:
    with tempfile.TemporaryDirectory() as folder:
        overrides = ["strategy=ddp_spawn", f"devices={devices}", "batch_size=12", "accelerator=cpu"]
        return on_ranks(plan_here(overrides, Path(folder)), all_checks)


@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
@pytest.mark.parametrize("devices", [2, 3])
def test_by_hand(devices: int, check: str) -> None:
    assert wrong_on(devices)[check] == ""


@pytest.mark.parametrize(
    ("devices", "precision", "tolerance"),
    [(2, "32-true", 0.0), pytest.param(4, "64-true", 1e-10, marks=pytest.mark.slow)],
)
def test_every_method_trains_to_the_same_weights(
    make_plan: MakePlan, devices: int, precision: str, tolerance: float
) -> None:
    """Clipped by the norm of the mean: each rank's own gradient would be clipped otherwise."""
    plan = make_plan(
        *("strategy=ddp", f"devices={devices}", f"precision={precision}", "batch_size=12", "max_epochs=2"),
        *("data.test_size=1655", "data.val_size=12", "model=lenet", "model.net.dropout=0", "threads=1"),
        *("optimizer=sgd", "optimizer.momentum=0.9", "test=false", "logger=none", "accelerator=cpu"),
        *("accumulate_grad_batches=2", "gradient_clip_val=0.1"),
    )
    folder = Path(plan.run_dir)
    run_plans([with_engine(plan, "raw", folder / method, method) for method in ("ddp", *METHODS)], folder)
    for method in METHODS:
        comparison = compare(folder / "ddp", folder / method, tolerance=tolerance)
        assert comparison.within_tolerance, comparison.text()


def counted(plan: Plan, context: RankContext) -> Metrics:
    """Run the plan's engine; torch's profiler sees also the collectives that C++ calls."""
    profiler: Any = torch.autograd.profiler.profile(use_kineto=False)
    with profiler:
        ENGINES[plan.engine.name](plan, context)
    return {"calls": sum(event.name == "c10d::allreduce_" for event in profiler.function_events)}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_one_all_reduce_a_step_and_none_an_epoch(engine: str, make_plan: MakePlan) -> None:
    """The gradients of this net fit in one bucket. 1,257 digits are 4 batches of 320, or 8 of 160."""
    calls = []
    for words in (
        ("max_epochs=1", "batch_size=320"),
        ("max_epochs=1", "batch_size=160"),
        ("max_epochs=2", "batch_size=320"),
    ):
        shared = ("strategy=ddp", "devices=2", "accelerator=cpu", "model=mlp", "logger=none", "test=false")
        calls.append(int(on_ranks(make_plan(f"engine={engine}", *shared, *words), counted)["calls"]))
    few, many, twice = calls
    assert (many - few, twice - few) == (4, 4), "an epoch's values come by one all-gather"
