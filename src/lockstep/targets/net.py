"""A net of the user's own, held to what a task needs of it."""

from collections.abc import Mapping
from math import prod
from typing import Any, cast

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lockstep.config_error import ConfigError, require
from lockstep.schemas.target import KEY
from lockstep.targets.locate import create


def own_net(call: Mapping[str, Any], shape: tuple[int, ...], outputs: int, *, classes: bool, trains: bool) -> nn.Module:
    """What the target makes for samples of `shape` and so many outputs (classes, or regressed values).

    Raises:
        ConfigError: it is no net, nothing of it can be trained, or (at its first batch) its outputs have another shape.
    """
    key, path = f"model.{KEY}", call[KEY]
    net = create("model", call, {"shape": shape, "outputs": outputs})
    why, instead = f"it makes a {type(net).__name__}, and not an nn.Module", "the path of a net"
    require(isinstance(net, nn.Module), key, path, why, instead)
    lazy = any(is_lazy(own) for own in (*net.parameters(), *net.buffers()))
    require(not lazy, key, path, "it has lazy layers, whose sizes only a batch tells", "layers with their sizes")
    can_train = any(own.requires_grad for own in net.parameters())
    require(can_train or not trains, key, path, "it has no parameter to train", "a net with some, or train=false")
    _check_first_outputs(net, f"{key}={path}", outputs, classes)
    return cast(nn.Module, net)


def _check_first_outputs(net: nn.Module, override: str, outputs: int, classes: bool) -> None:
    """At its first batch: a loss would broadcast outputs of another shape, or fail far from the cause."""

    def check(_net: nn.Module, _inputs: object, made: object) -> None:
        handle.remove()
        shape = tuple(made.shape) if isinstance(made, Tensor) else ()
        fits = len(shape) == 2 and shape[1] == outputs if classes else len(shape) > 1 and prod(shape[1:]) == outputs
        if not fits:
            what = f"outputs of shape {shape}" if shape else f"a {type(made).__name__}"
            wanted = f"(batch, {outputs})" if classes else f"(batch, …) with {outputs} numbers a sample"
            raise ConfigError(f"{override}: it makes {what}, and the data asks for {wanted}; write one that fits.")

    handle = net.register_forward_hook(check)
