"""Which random numbers are equal on all ranks (the weights), and which differ (what is drawn while training)."""

import random

import numpy as np
import torch
from torch import nn

from lockstep import nets
from lockstep.data.tensors import TensorData
from lockstep.memory.format import memory_format_of
from lockstep.plan import Plan
from lockstep.precision import dtype_of


def build_model(plan: Plan, data: TensorData) -> nn.Module:
    """The net with its first weights: drawn under the run's seed before anything else, the same on every rank.

    They are drawn in float32, and widened for a run in float64 before any checkpoint could be loaded into them.

    Raises:
        ConfigError: the net cannot have the plan's memory format.
    """
    net = plain_net(plan, data).to(dtype_of(plan))
    return net.to(memory_format=memory_format_of(plan, net))


def plain_net(plan: Plan, data: TensorData) -> nn.Module:
    """The same weights in float32, as torch lays them out."""
    torch.manual_seed(plan.seed)
    options = {key: value for key, value in vars(plan.model).items() if key != "name"}
    return nets.create(plan.model.name, data.shape, data.outputs, **options)


def seed_rank(seed: int, rank: int) -> None:
    """Give this rank random streams of its own, for dropout and the like."""
    own = seed + 1 + rank
    random.seed(own)
    np.random.seed(own % 2**32)
    torch.manual_seed(own)
