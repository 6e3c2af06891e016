"""A net of the user's own, held to what a task needs of it."""

from collections.abc import Mapping
from math import prod
from typing import Any, cast

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lockstep.config_error import ConfigError, require
from lockstep.schemas.target import KEY
from lockstep.targets.locate import create

Wanted = tuple[int | None, ...] | int | None
"""The shape of a sample's outputs, None for any size; or how many numbers they are, in any shape; None: any."""


def own_net(
    call: Mapping[str, Any], shape: tuple[int, ...], outputs: int, wanted: Wanted, *, trains: bool
) -> nn.Module:
    """What the target makes for samples of `shape` and so many outputs (classes, or regressed values).

    Raises:
        ConfigError: it is no net, nothing of it can be trained, or (at its first batch) its outputs have another shape.
    """
    key, path = f"model.{KEY}", call[KEY]
    net = create("model", call, {"shape": shape, "outputs": outputs})
    reason, hint = f"it makes a {type(net).__name__}, and not an nn.Module", "the path of a net"
    require(isinstance(net, nn.Module), key, path, reason, hint)
    lazy = any(is_lazy(own) for own in (*net.parameters(), *net.buffers()))
    require(not lazy, key, path, "it has lazy layers, whose sizes only a batch tells", "layers with their sizes")
    can_train = any(own.requires_grad for own in net.parameters())
    require(can_train or not trains, key, path, "it has no parameter to train", "a net with some, or train=false")
    if wanted is not None:
        _check_first_outputs(net, f"{key}={path}", wanted)
    return cast(nn.Module, net)


def _check_first_outputs(net: nn.Module, override: str, wanted: tuple[int | None, ...] | int) -> None:
    """At its first batch: a loss would broadcast outputs of another shape, or fail far from the cause."""

    def check(_net: nn.Module, _inputs: object, made: object) -> None:
        handle.remove()
        shape = tuple(made.shape) if isinstance(made, Tensor) else ()
        if not _fits(shape[1:], wanted):
            outputs = f"outputs of shape {shape}" if shape else f"a {type(made).__name__}"
            reason = f"it makes {outputs}, and the task asks for {_shown(wanted)}"
            raise ConfigError(f"{override}: {reason}; write one that fits.")

    handle = net.register_forward_hook(check)


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...] | int) -> bool:
    if isinstance(wanted, int):
        return len(shape) > 0 and prod(shape) == wanted
    return len(shape) == len(wanted) and all(size in (None, own) for own, size in zip(shape, wanted, strict=True))


def _shown(wanted: tuple[int | None, ...] | int) -> str:
    if isinstance(wanted, int):
        return f"(batch, …) with {wanted} numbers a sample"
    return f"({', '.join(['batch', *('…' if size is None else str(size) for size in wanted)])})"
