"""Each bug that is planted in a run is found at the right step of the right quantity."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import lockstep.engine
from lockstep.engine.loaders import map_loader
from lockstep.launch.topology import RankContext
from lockstep.models import Classifier
from lockstep.plan.plan import Plan
from lockstep.runs.compare import compare
from lockstep.runs.run_files import Metrics
from tests.conftest import MakePlan
from tests.rank_helpers import on_ranks
from tests.test_compare import SMALL


def trained(plan: Plan, context: RankContext, name: str) -> Metrics:
    """Train in a subfolder."""
    folder = Path(plan.run_dir) / name
    folder.mkdir(exist_ok=True)
    return lockstep.engine.run(replace(plan, run_dir=str(folder)), context)


def plant_an_unreduced_gradient(rank: int) -> None:
    """At step 7, on rank 1."""
    calls = iter(range(1, 1000))

    def wrong(module: Classifier) -> None:
        if next(calls) == 7 and rank == 1:
            for parameter in module.parameters():
                parameter.grad *= 2  # type: ignore[assignment, operator]

    Classifier.on_after_backward = wrong  # type: ignore[assignment, method-assign]


def plant_two_swapped_samples() -> None:
    """Positions 40 and 100 of the second epoch: in its batches 3 and 8, steps 11 + 4 and 11 + 9."""
    right = map_loader.epoch_order

    def wrong(samples: int, seed: int, epoch: int) -> torch.Tensor:
        order = right(samples, seed, epoch)
        if epoch == 1:
            order[[40, 100]] = order[[100, 40]]
        return order

    map_loader.epoch_order = wrong


def plant_a_rate_off_by_one_ulp() -> None:
    """At step 9 alone, in the last bit."""
    steps = iter(range(1, 1000))

    def wrong(module: Classifier, epoch: int, batch: int, optimizer: Any, closure: Callable[[], Any]) -> None:
        [group] = optimizer.param_groups
        before = group["lr"]
        if next(steps) == 9:
            group["lr"] = math.nextafter(before, 1)
        optimizer.step(closure=closure)
        group["lr"] = before

    Classifier.optimizer_step = wrong  # type: ignore[assignment]


def with_three_bugs(plan: Plan, context: RankContext) -> Metrics:
    trained(plan, context, "right")
    plant_an_unreduced_gradient(context.rank)
    plant_two_swapped_samples()
    plant_a_rate_off_by_one_ulp()
    return trained(plan, context, "wrong")


@pytest.mark.slow
def test_bugs_are_detected_at_their_steps(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp", "devices=2", "model.net.hidden=[16]", *SMALL)
    on_ranks(plan, with_three_bugs)
    runs = Path(plan.run_dir) / "right", Path(plan.run_dir) / "wrong"
    for tolerance in (None, 1e-10):
        comparison = compare(*runs, tolerance)
        assert comparison.verdict == "different"
        first = {name: str(quantity.first) for name, quantity in comparison.quantities.items()}
        assert first["ranks of one run"].startswith("epoch 1, step 7, grad_norm_spread in ")
        assert first["learning rate"].startswith("epoch 1, step 9, lr: ")
        assert first["sample ids"].startswith("epoch 2, step 15, ids: ")
        assert "They differ first in ranks of one run, epoch 1, step 7, grad_norm_spread" in comparison.text()
    assert compare(runs[0], runs[0]).verdict == "identical"
