"""Gradients of more than two ranks have the same bits in a process's first step and in any other."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.base.config_error import ConfigError
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.run_files import Metrics
from lockstep.strategies.parallel.fixed_bucket_ddp import FixedBucketDDP
from tests.comparing import require_identical
from tests.conftest import MakePlan, MakeUserPlan
from tests.rank_helpers import on_ranks
from tests.test_user_module import DDP, trained


class Backwards(nn.Module):
    """Its layers are registered the other way round than they compute, so gradients come first where torch's buckets,
    which it lays out before any has come, have them last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last, self.middle, self.first = nn.Linear(53, 7), nn.Linear(301, 53), nn.Linear(40, 301)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.last(self.middle(self.first(inputs).relu()).relu())
        return outputs


def new_net() -> nn.Module:
    torch.manual_seed(1)
    return Backwards()


def gradients_of(ddp: DistributedDataParallel, rank: int, step: int) -> torch.Tensor:
    inputs = torch.randn(8, 40, generator=torch.Generator().manual_seed(100 * step + rank))
    ddp.zero_grad()
    ddp(inputs).square().sum().backward()
    return torch.cat([parameter.grad.flatten() for parameter in ddp.parameters() if parameter.grad is not None])


def first_and_later(wrap: Callable[[nn.Module, None], DistributedDataParallel], rank: int) -> int:
    """Steps of one wrapped net that differ from the first step of a net that is wrapped anew, as after a resume."""
    lasting, different = wrap(new_net(), None), 0
    for step in range(4):
        anew = gradients_of(wrap(new_net(), None), rank, step)
        different += not torch.equal(gradients_of(lasting, rank, step), anew)
    return different


def each_kind(plan: Plan, context: RankContext) -> Metrics:
    """Return in how many steps torch's own DDP differs, and ours with fixed buckets."""
    default = first_and_later(DistributedDataParallel, context.rank)
    fixed = first_and_later(FixedBucketDDP, context.rank)
    dist.barrier()
    return {"default": default, "fixed": fixed}


def test_buckets_stay_the_same(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp_spawn", "devices=3", "batch_size=12", "accelerator=cpu", "threads=1")
    assert on_ranks(plan, each_kind) == {"default": 3, "fixed": 0}


def test_an_unused_parameter_needs_a_key(make_user_plan: MakeUserPlan) -> None:
    job = ("model=regressor", "model._target_=strange_steps.Unused", "data=stream", "+model.since=1", "max_epochs=1")
    with pytest.raises(ConfigError, match="find_unused_parameters=false: a parameter received no gradient in a step"):
        trained(make_user_plan(*job, *DDP, folder="refused"))
    assert trained(make_user_plan(*job, *DDP, "strategy.find_unused_parameters=true", folder="trained"))


@pytest.mark.slow
def test_a_static_graph_computes_the_same(make_user_plan: MakeUserPlan) -> None:
    job = ("model=regressor", "data=stream", "max_epochs=1", *DDP)
    runs = [trained(make_user_plan(*job, f"strategy.static_graph={on}", folder=on)) for on in ("false", "true")]
    require_identical(runs[0], runs[1])
