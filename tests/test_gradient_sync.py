"""engine.gradient_sync averages the gradients of a LightningModule by hand, to the numbers of Lightning's DDP."""

from pathlib import Path

import pytest

from lockstep.plan.plan import Plan
from tests.comparing import metrics_in, require_identical
from tests.conftest import MakeUserPlan
from tests.rank_helpers import ENGINES, by_engines, on_ranks
from tests.test_user_module import DDP, THAWING

DOUBLE = "precision=64-true"
UNUSED = ("model=regressor", "model._target_=strange_steps.Unused", "data=stream", DOUBLE)
FINDS = "strategy.find_unused_parameters=true"


def by_both(plan: Plan) -> list[Path]:
    """Run the plan by each engine on the same ranks, and return the folders."""
    on_ranks(plan, by_engines)
    return [Path(plan.run_dir) / name for name in ENGINES]


def by_hand(method: str) -> tuple[str, str]:
    return "engine=raw", f"engine.gradient_sync={method}"


@pytest.mark.slow
def test_two_ranks_are_identical(make_user_plan: MakeUserPlan) -> None:
    """With a layer that is thawed in the second epoch, a rank without samples, and accumulation."""
    job = (*THAWING, "accumulate_grad_batches=3", "gradient_clip_val=0.5")
    lightning, raw = by_both(make_user_plan(*job, *DDP, *by_hand("ring")))
    require_identical(lightning, raw)
    assert [metrics_in(run)["gradient_sync"] for run in (lightning, raw)] == ["ddp", "ring"]


@pytest.mark.slow
def test_unused_parameters(make_user_plan: MakeUserPlan) -> None:
    """AdamW would shrink weights whose gradient is zero and not None."""
    require_identical(*by_both(make_user_plan(*UNUSED, *DDP, FINDS, *by_hand("bucket"), folder="found")))
