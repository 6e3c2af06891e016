"""A user's net, checked against its task."""

from collections.abc import Mapping
from math import prod
from typing import Any, cast

from torch import Tensor, nn

from lockstep.config_error import ConfigError, require
from lockstep.schemas.target import KEY
from lockstep.targets.kinds import is_lightning_module
from lockstep.targets.locate import create


def create_user_net(
    call: Mapping[str, Any], shape: tuple[int, ...], outputs: int, output_count: int | None, *, trains: bool
) -> nn.Module:
    """Create a user's net for samples of `shape` and so many outputs (classes, or regressed values).

    Args:
        output_count: how many numbers its outputs have per sample; None if that may vary.

    Raises:
        ConfigError: it is no net, has no parameter to train, or (at its first batch) its outputs have another shape.
    """
    key, path = f"model.{KEY}", call[KEY]
    net = create("model", call, {"shape": shape, "outputs": outputs})
    is_net = isinstance(net, nn.Module) and not is_lightning_module(net)
    reason = f"this returns a {type(net).__name__}, and not a plain nn.Module"
    require(is_net, key, path, reason, "the path of a net")
    trainable = any(parameter.requires_grad for parameter in net.parameters())
    require(trainable or not trains, key, path, "no parameter requires gradients", "a net with some, or train=false")
    if output_count is not None:
        _check_first_outputs(net, f"{key}={path}", output_count)
    return cast(nn.Module, net)


def _check_first_outputs(net: nn.Module, override: str, expected: int) -> None:
    """Check the outputs of the first batch: a loss would broadcast another shape, or fail far from the cause."""

    def check(_net: nn.Module, _inputs: object, outputs: object) -> None:
        handle.remove()
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else ()
        if len(shape) < 2 or prod(shape[1:]) != expected:
            returned = f"outputs of shape {shape}" if shape else f"a {type(outputs).__name__}"
            numbers = f"(batch, …) with {expected} numbers a sample"
            raise ConfigError(f"{override}: this returns {returned}, but the task expects {numbers}.")

    handle = net.register_forward_hook(check)
