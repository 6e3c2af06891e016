"""Which random numbers are equal on all ranks (the weights), and which differ (what is drawn while training)."""

from typing import Any

from torch import nn

from lockstep.memory.format import memory_format_of
from lockstep.plan import Plan
from lockstep.precision import convert
from lockstep.random_state import seed_all
from lockstep.targets.net import create_user_net


def build_model(plan: Plan, data: Any) -> nn.Module:
    """The net with its first weights: drawn under the run's seed before anything else, the same on every rank.

    They are drawn in float32, and widened for a run in float64 before any checkpoint could be loaded into them.

    Args:
        data: has the shape of a sample, and how many outputs its targets ask for.

    Raises:
        ConfigError: the net cannot have the plan's memory format.
    """
    net = plain_net(plan, data)
    convert(plan, net)
    return net.to(memory_format=memory_format_of(plan, net))


def plain_net(plan: Plan, data: Any) -> nn.Module:
    """The same weights in float32, as torch lays them out."""
    seed_all(plan.seed)
    outputs = plan.task.outputs(data.shape, data.outputs)
    return create_user_net(
        plan.model.call, data.shape, outputs, plan.task.output_shape(plan, outputs), trains=plan.train
    )
