"""Each way to one gradient against the sum computed by hand, on 2, 3 and 4 ranks; any size, integers included."""

import tempfile
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from lockstep.build import plan_from
from lockstep.command_line.compose import compose_job
from lockstep.compare import compare
from lockstep.launch.topology import RankContext
from lockstep.parallel.reduce import BY_HAND, ring_all_reduce
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from tests.conftest import MakePlan
from tests.rank_helpers import ENGINES, on_ranks, with_engine


def three_gradients(plan: Plan, context: RankContext) -> Metrics:
    """Rank r brings r+1 times 12, 24, 36 …: W ranks sum to W(W+1)/2 times that, and the mean is a whole number."""
    world, wrong = plan.world_size, []
    for way, reduce in BY_HAND.items():
        shapes: list[tuple[int, ...]] = [(2, 3), (), (5,)]
        ours = [(context.rank + 1) * numbers(index, shape) for index, shape in enumerate(shapes)]
        reduce(ours)
        for index, (shape, gradient) in enumerate(zip(shapes, ours, strict=True)):
            expected = numbers(index, shape) * (world + 1) / 2
            wrong += [] if torch.equal(gradient, expected) else [f"{way} {shape}"]
    return together(plan, wrong)


def numbers(index: int, shape: tuple[int, ...]) -> torch.Tensor:
    """12, 24, 36 …, from another start in each tensor."""
    count = torch.Size(shape).numel()
    return 12.0 * (torch.arange(1, count + 1) + 100 * index).view(shape)


def ring_of_any_size(plan: Plan, context: RankContext) -> Metrics:
    """Sizes below and above the world, not its multiples, and none: number i of rank r is 10·i + r."""
    world, wrong = plan.world_size, []
    for size in (0, 1, 2, 3, 5, 7, 64, 1001):
        for kind in (torch.float32, torch.float64, torch.int64, torch.int32):
            ours = (10 * torch.arange(size) + context.rank).to(kind)
            ring_all_reduce(ours)
            expected = [10 * world * index + world * (world - 1) // 2 for index in range(size)]
            wrong += [] if ours.tolist() == expected else [f"{size} {kind}"]
    return together(plan, wrong)


def ring_as_the_library(plan: Plan, context: RankContext) -> Metrics:
    """Beside torch's all-reduce, on numbers that both sum exactly, in any shape, scattered ones too."""
    wrong = []
    for kind in (torch.int32, torch.int64, torch.float32, torch.float64, torch.bfloat16):
        for size in (0, 1, 2, 3, 5, 7, 1000, 1001):
            ours = ((torch.arange(size) * 7 + 3 * context.rank) % 11 - 5).to(kind)
            theirs = ours.clone()
            ring_all_reduce(ours)
            dist.all_reduce(theirs)
            wrong += [] if torch.equal(ours, theirs) else [f"{size} {kind}"]
    square = torch.arange(15.0).view(3, 5) * (context.rank + 1)
    for ours in (square, torch.tensor(context.rank + 1.0), square.t(), square[:, 1:3], square[::2], torch.empty(0, 4)):
        ours, theirs = ours.clone(memory_format=torch.preserve_format), ours.contiguous().clone()
        shape, stride = ours.shape, ours.stride()
        ring_all_reduce(ours)
        dist.all_reduce(theirs)
        same = torch.equal(ours, theirs) and (ours.shape, ours.stride()) == (shape, stride)
        wrong += [] if same else [f"{tuple(shape)} {stride}"]
    grid = torch.ones(4, 6)
    ring_all_reduce(grid[:, ::2])
    wrong += [] if grid[:, 1::2].eq(1).all() and grid[:, ::2].eq(plan.world_size).all() else ["a view's neighbours"]
    return together(plan, wrong)


def together(plan: Plan, wrong: list[str]) -> Metrics:
    everyones: list[list[str]] = [[]] * plan.world_size
    dist.all_gather_object(everyones, wrong)
    return {"wrong": "; ".join(sentence for one in everyones for sentence in one)}


TASKS = [three_gradients, ring_of_any_size, ring_as_the_library]


def all_tasks(plan: Plan, context: RankContext) -> Metrics:
    return {task.__name__: task(plan, context)["wrong"] for task in TASKS}


@cache
def found_on(devices: int) -> Metrics:
    """By one start of so many ranks."""
    with tempfile.TemporaryDirectory() as folder:
        overrides = ["strategy=ddp_spawn", f"devices={devices}", "batch_size=12", "accelerator=cpu"]
        return on_ranks(plan_from(compose_job(overrides)[0], Path(folder)), all_tasks)


@pytest.mark.parametrize("task", [task.__name__ for task in TASKS])
@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_by_hand(devices: int, task: str) -> None:
    assert found_on(devices)[task] == ""


def every_way(plan: Plan, context: RankContext) -> Metrics:
    for way in ("ddp", *BY_HAND):
        own = with_engine(plan, "raw", plan_folder(plan, way), way)
        ENGINES["raw"](own, context)
    return {}


def plan_folder(plan: Plan, way: str) -> Path:
    return Path(plan.run_dir) / way


@pytest.mark.parametrize(("devices", "precision", "tolerance"), [(2, "32-true", 0.0), (4, "64-true", 1e-10)])
def test_every_way_trains_to_the_same_weights(
    make_plan: MakePlan, devices: int, precision: str, tolerance: float
) -> None:
    plan = make_plan(
        *("strategy=ddp", f"devices={devices}", f"precision={precision}", "batch_size=12", "max_epochs=2"),
        *("data.test_size=1655", "data.val_size=12", "model=lenet", "model.dropout=0", "threads=1"),
        *("optimizer=sgd", "optimizer.momentum=0.9", "test=false", "logger=none", "accelerator=cpu"),
        *(
            "accumulate_grad_batches=2",
            "gradient_clip_val=0.1",
        ),  # of the sum: each rank's own would be clipped otherwise
    )
    on_ranks(plan, every_way)
    for way in BY_HAND:
        comparison = compare(plan_folder(plan, "ddp"), plan_folder(plan, way), tolerance=tolerance)
        assert comparison.within_tolerance, comparison.text()
