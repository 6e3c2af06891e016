"""Weights and order are equal on all ranks; random streams and dropout masks differ."""

import random
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from lockstep import data
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.random_state import seed_rank
from lockstep.record.digest import digest
from lockstep.run_files import Metrics
from lockstep.sampler import epoch_order
from lockstep.session.task import create_net
from tests.rank_helpers import on_ranks


def streams(plan: Plan, context: RankContext) -> Metrics:
    """On a rank: rank 0 returns how many different ones there are of each thing."""
    net = create_net(plan, data.load(plan.data))
    seed_rank(plan.seed, context.rank)
    values = {
        "weights": digest(net.state_dict()),
        "order": epoch_order(plan.data.train_samples, plan.seed, 3).tolist(),
        "masks": nn.Dropout(0.5)(torch.ones(64)).tolist(),
        "python": random.random(),
        "numpy": float(np.random.random()),
    }
    everyone = [values] * context.world_size
    dist.all_gather_object(everyone, values)
    return {key: len({str(one[key]) for one in everyone}) for key in values}


def test_ranks_share_weights_and_order_and_nothing_else(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan("strategy=ddp", "devices=3", "batch_size=12", "model=lenet")
    seen = on_ranks(plan, streams)
    assert seen == {"weights": 1, "order": 1, "masks": 3, "python": 3, "numpy": 3}
