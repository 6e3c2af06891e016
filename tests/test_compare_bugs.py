"""Each bug that is planted in an engine is found at the right step of the right quantity."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from lockstep.compare import compare
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.raw import data, step
from lockstep.run_files import Metrics
from tests.conftest import MakePlan
from tests.rank_helpers import ENGINES, on_ranks, with_engine
from tests.test_compare import SMALL, first_of


def lightning_run(plan: Plan, context: RankContext) -> Metrics:
    return ENGINES["lightning"](with_engine(plan, "lightning", Path(plan.run_dir) / "right"), context)


def raw_run(plan: Plan, context: RankContext, gradient_sync: str = "ddp") -> Metrics:
    return ENGINES["raw"](with_engine(plan, "raw", Path(plan.run_dir) / "wrong", gradient_sync), context)


def plant_an_unreduced_gradient(rank: int) -> None:
    """At step 7, on rank 1."""
    calls = iter(range(1, 1000))
    right = step.all_reduce

    def wrong(gradients: Sequence[torch.Tensor]) -> None:
        before = [gradient.clone() for gradient in gradients]
        right(gradients)
        if next(calls) == 7 and rank == 1:
            for gradient, local in zip(gradients, before, strict=True):
                gradient.copy_(local)

    step.METHODS["all_reduce"] = wrong


def plant_two_swapped_samples() -> None:
    """Positions 40 and 100 of the second epoch: in its batches 3 and 8, steps 11 + 4 and 11 + 9."""
    right = data.Loader.order

    def wrong(self: data.Loader, sampler: Any, epoch: int) -> torch.Tensor:
        order = right(self, sampler, epoch)
        if epoch == 1 and self.trains:
            order[[40, 100]] = order[[100, 40]]
        return order

    data.Loader.order = wrong  # type: ignore[method-assign]


def plant_a_rate_off_by_one_ulp() -> None:
    """At step 9 alone, in the last bit."""
    right, steps, before = step.before_update, 0, 0.0

    def wrong(rank: Any, optimizer: Optimizer) -> None:
        nonlocal steps, before
        steps += 1
        [group] = optimizer.param_groups
        if steps == 9:
            before, group["lr"] = group["lr"], math.nextafter(group["lr"], 1)
        elif steps == 10:
            group["lr"] = before
        right(rank, optimizer)

    step.before_update = wrong


def with_three_bugs(plan: Plan, context: RankContext) -> Metrics:
    lightning_run(plan, context)
    plant_an_unreduced_gradient(context.rank)
    plant_two_swapped_samples()
    plant_a_rate_off_by_one_ulp()
    return raw_run(plan, context, "all_reduce")


def test_bugs_are_detected_at_their_steps(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp", "devices=2", "model.net.hidden=[16]", *SMALL)
    on_ranks(plan, with_three_bugs)
    runs = Path(plan.run_dir) / "right", Path(plan.run_dir) / "wrong"
    for tolerance in (None, 1e-10):
        comparison = compare(*runs, tolerance)
        assert comparison.verdict == "different"
        first = {name: str(quantity.first) for name, quantity in comparison.quantities.items()}
        assert first["ranks in step"].startswith("epoch 1, step 7, grad_norm_spread in ")
        assert first["learning rate"].startswith("epoch 1, step 9, lr: ")
        assert first["sample ids"].startswith("epoch 2, step 15, ids: ")
        assert "They differ first in ranks in step, epoch 1, step 7, grad_norm_spread" in comparison.text()
    assert compare(runs[0], runs[0]).verdict == "identical"


def with_a_larger_rate_on_rank_1(plan: Plan, context: RankContext) -> Metrics:
    """By 1 %, in both engines: the gradients are all-reduced, so every norm is equal on all ranks."""
    right = torch.optim.Adam.__init__

    def wrong(self: torch.optim.Adam, params: Any, lr: float, **options: Any) -> None:
        right(self, params, lr * (1.01 if context.rank == 1 else 1), **options)

    torch.optim.Adam.__init__ = wrong  # type: ignore[method-assign, assignment]
    lightning_run(plan, context)
    return raw_run(plan, context)


def test_ranks_that_diverge_alike_in_both_engines(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp", "devices=2", "model.net.hidden=[16]", "record.weights=step", *SMALL)
    on_ranks(plan, with_a_larger_rate_on_rank_1)
    runs = Path(plan.run_dir) / "right", Path(plan.run_dir) / "wrong"
    comparison = compare(*runs)
    assert first_of(comparison) == ("ranks in step", f"epoch 1, step 1, weights of ranks 0 and 1 in {runs[0]}: ")
    apart = {name for name, quantity in comparison.quantities.items() if quantity.first is not None}
    assert apart == {"ranks in step"}, "all else is equal in both"
