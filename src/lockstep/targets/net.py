"""A user's net, checked against its task."""

from math import prod
from typing import TYPE_CHECKING, cast

from torch import Tensor, nn

from lockstep.config_error import ConfigError, require
from lockstep.schemas.target import KEY
from lockstep.targets.kinds import is_lightning_module
from lockstep.targets.locate import create

if TYPE_CHECKING:
    from lockstep.plan import Plan


def create_user_net(plan: "Plan", shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Create a plan's net for samples of `shape` and so many outputs (classes, or regressed values).

    Raises:
        ConfigError: it is no net, has no parameter to train, or (at its first batch) its outputs have another shape.
    """
    key, path = f"model.{KEY}", plan.model.call[KEY]
    net = create("model", plan.model.call, {"shape": shape, "outputs": outputs})
    is_net = isinstance(net, nn.Module) and not is_lightning_module(net)
    reason = f"this returns a {type(net).__name__}, and not a plain nn.Module"
    require(is_net, key, path, reason, "the path of a net")
    trainable = any(parameter.requires_grad for parameter in net.parameters())
    fits, hint = trainable or not plan.train, "a net with some, or train=false"
    require(fits, key, path, "no parameter requires gradients", hint)
    if plan.task.samples not in ("sequences", "any"):
        parts = plan.data.parts if plan.objective.classes else None
        _check_first_outputs(net, f"{key}={path}", outputs, parts)
    return cast(nn.Module, net)


def _check_first_outputs(net: nn.Module, override: str, outputs: int, parts: tuple[int, ...] | None) -> None:
    """Check the outputs of the first batch: a loss would broadcast another shape, or fail far from the cause.

    Args:
        parts: the shape of a sample's targets if they are classes, of which the net may have more; None for numbers.
    """

    def check(_net: nn.Module, _inputs: object, returned: object) -> None:
        handle.remove()
        shape = tuple(returned.shape) if isinstance(returned, Tensor) else ()
        if parts is None:
            fits = len(shape) > 1 and prod(shape[1:]) == outputs
            expected = f"(batch, …) with {outputs} numbers a sample"
        else:
            fits = shape[1:2] >= (outputs,) and shape[2:] == parts
            expected = f"(batch, {', '.join([f'{outputs} or more', *map(str, parts)])})"
        if not fits:
            described = f"outputs of shape {shape}" if shape else f"a {type(returned).__name__}"
            raise ConfigError(f"{override}: this returns {described}, but the task expects {expected}.")

    handle = net.register_forward_hook(check)
