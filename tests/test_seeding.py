"""Weights are equal on all ranks; random streams and dropout masks differ."""

import random
from collections import defaultdict

import numpy as np
import torch
from torch import nn

from lockstep import data
from lockstep.random_state import seed_rank
from lockstep.record.digest import digest
from lockstep.session.task import create_net
from tests.conftest import MakePlan


def test_ranks_share_weights_and_nothing_else(make_plan: MakePlan) -> None:
    """Whatever a rank has drawn before its net is created."""
    plan = make_plan("model=lenet")
    streams = defaultdict(set)
    for rank in range(3):
        streams["weights"].add(digest(create_net(plan, data.load(plan.data)).state_dict()))
        seed_rank(plan.seed, rank)
        streams["masks"].add(str(nn.Dropout(0.5)(torch.ones(64)).tolist()))
        streams["python"].add(str(random.random()))
        streams["numpy"].add(str(np.random.random()))
    assert {name: len(values) for name, values in streams.items()} == {
        "weights": 1,
        "masks": 3,
        "python": 3,
        "numpy": 3,
    }
