"""Each method of averaging gradients against the mean by hand, and the ring for tensors of any size."""

from functools import cache
from pathlib import Path

import pytest
import torch

from lockstep.raw.average import METHODS, buckets, ring_sum
from lockstep.runs.compare import compare
from tests.conftest import MakePlan
from tests.rank_helpers import run_plans, with_engine, wrong_on


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


CHECKS = [three_gradients, ring_of_any_size]


results_on = cache(lambda devices: wrong_on(devices, *CHECKS))


@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
@pytest.mark.parametrize("devices", [2, 3])
def test_by_hand(devices: int, check: str) -> None:
    assert results_on(devices)[check] == ""


@pytest.mark.slow
def test_every_method_trains_to_the_same_weights(make_plan: MakePlan) -> None:
    """Clipped by the norm of the mean: each rank's own gradient would be clipped otherwise."""
    plan = make_plan(
        *("strategy=ddp", "devices=2", "batch_size=12", "max_epochs=2"),
        *("data.test_size=1655", "data.val_size=12", "model=lenet", "model.net.dropout=0", "threads=1"),
        *("optimizer=sgd", "optimizer.momentum=0.9", "test=false", "logger=none", "accelerator=cpu"),
        *("accumulate_grad_batches=2", "gradient_clip_val=0.1"),
    )
    folder = Path(plan.run_dir)
    run_plans([with_engine(plan, "raw", folder / method, method) for method in ("ddp", *METHODS)], folder)
    for method in METHODS:
        comparison = compare(folder / "ddp", folder / method, tolerance=0.0)
        assert comparison.within_tolerance, comparison.text()
