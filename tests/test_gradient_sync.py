"""engine.gradient_sync averages the gradients of a LightningModule by hand, to the numbers of Lightning's DDP."""

from pathlib import Path

import pytest

from lockstep.plan.plan import Plan
from lockstep.runs.compare import compare
from tests.comparing import metrics_in, require_close, require_identical
from tests.conftest import MakeUserPlan
from tests.rank_helpers import ENGINES, by_engines, on_ranks
from tests.test_user_module import DDP, SINGLE, THAWING, trained

DOUBLE = "precision=64-true"
UNUSED = ("model=regressor", "model._target_=strange_steps.Unused", "data=stream", DOUBLE)
BESIDE_RING = ("all_reduce", "bucket", "reduce_broadcast")
FINDS = "strategy.find_unused_parameters=true"


def by_both(plan: Plan) -> list[Path]:
    """Run the plan by each engine on the same ranks, and return the folders."""
    on_ranks(plan, by_engines)
    return [Path(plan.run_dir) / name for name in ENGINES]


def by_hand(method: str) -> tuple[str, str]:
    return "engine=raw", f"engine.gradient_sync={method}"


@pytest.mark.parametrize("method", ["ring", *(pytest.param(each, marks=pytest.mark.slow) for each in BESIDE_RING)])
def test_two_ranks_are_identical(method: str, make_user_plan: MakeUserPlan) -> None:
    """With a layer that is thawed in the second epoch, a rank without samples, and accumulation."""
    job = (*THAWING, "accumulate_grad_batches=3", "gradient_clip_val=0.5")
    lightning, raw = by_both(make_user_plan(*job, *DDP, *by_hand(method)))
    require_identical(lightning, raw)
    assert [metrics_in(run)["gradient_sync"] for run in (lightning, raw)] == ["ddp", method]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ring", "bucket"])
def test_four_ranks_equal_one_process(method: str, make_user_plan: MakeUserPlan) -> None:
    """Four numbers have several sums. One rank that keeps its gradient would be far off."""
    single = trained(make_user_plan(*THAWING, *SINGLE, folder="single"))
    lightning, raw = by_both(make_user_plan(*THAWING, "strategy=ddp", "devices=4", *by_hand(method), folder="four"))
    for run in (lightning, raw):
        require_close(single, run)
    assert compare(lightning, raw).within_tolerance


def test_unused_parameters(make_user_plan: MakeUserPlan) -> None:
    """AdamW would shrink weights whose gradient is zero and not None."""
    require_identical(*by_both(make_user_plan(*UNUSED, *DDP, FINDS, *by_hand("bucket"), folder="found")))
