"""Create what a plan trains, its weights drawn under the run's seed before anything else: the same on every rank."""

from typing import Any

from torch import nn

from lockstep import schemas
from lockstep.config_error import require
from lockstep.memory.format import memory_format_of
from lockstep.plan import Plan
from lockstep.precision import convert
from lockstep.random_state import seed_all
from lockstep.schemas.target import KEY
from lockstep.targets.kinds import is_lightning_module
from lockstep.targets.locate import create
from lockstep.targets.net import create_user_net


def create_net(plan: Plan, shapes: Any) -> nn.Module:
    """Create a plain net in the plan's dtype; its weights are drawn in float32 before.

    Args:
        shapes: has the `shape` of a sample, and the number of `outputs` that its targets need.

    Raises:
        ConfigError: the net cannot have the plan's memory format.
    """
    net = create_float32_net(plan, shapes)
    convert(plan, net)
    return net.to(memory_format=memory_format_of(plan, net))


def create_float32_net(plan: Plan, shapes: Any) -> nn.Module:
    """Create a plain net in float32 and in torch's memory format."""
    seed_all(plan.seed)
    outputs = plan.task.outputs(shapes.shape, shapes.outputs)
    return create_user_net(
        plan.model.call, shapes.shape, outputs, plan.task.output_count(plan, outputs), trains=plan.train
    )


def create_module(
    choice: schemas.UserLightningModule | schemas.UserModel, seed: int, require_module: bool = True
) -> Any:
    """Create a user's LightningModule.

    Args:
        require_module: whether it has to be a LightningModule.

    Raises:
        ConfigError: the target makes no LightningModule.
    """
    seed_all(seed)
    module = create("model", choice.call)
    reason = f"it makes a {type(module).__name__}, and not a LightningModule"
    fits = is_lightning_module(module) or not require_module
    require(fits, f"model.{KEY}", choice.call[KEY], reason, "the path of a LightningModule")
    return module
