"""A module's `net` computed in another way, by replicas or in stages, while its weights keep their names.

An instance attribute is found before the submodule of its name: `module.net` is the proxy from then on, and
`parameters()`, `state_dict()` and `named_modules()` go on with the submodule.
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from lockstep.private_api.torch import is_tracing, submodule

NET = "net"  # the attribute of a LightningModule that strategies may replicate, divide into stages, or shard


def net_of(module: nn.Module) -> nn.Module | None:
    """Return the submodule `net` of a LightningModule, also behind a proxy; None if it has none, or another module."""
    net = submodule(module, NET)
    return None if hasattr(net, "automatic_optimization") else net


def replace_forward(module: nn.Module, compute: Callable[..., Any]) -> None:
    """Have `module.net(…)` call `compute`, until the module is given another net."""
    vars(module)[NET] = NetProxy(submodule(module, NET), compute)


class NetProxy:
    """Called like a net, it calls `compute`; all attributes are the net's. A copy, or a pickled one, is a plain net."""

    def __init__(self, net: Any, compute: Callable[..., Any]) -> None:
        object.__setattr__(self, "_NetProxy__net", net)
        object.__setattr__(self, "_NetProxy__compute", compute)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        if is_tracing() and len({weight.device for weight in self.__net.parameters()}) == 1:
            return self.__net(*inputs, **options)  # the graph is the net's, without replicas
        return self.__compute(*inputs, **options)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For `isinstance`, and for a module that is given the net under a second name."""
        return type(self.__net)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__net, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__net, name, value)

    def __getitem__(self, index: Any) -> Any:
        return self.__net[index]

    def __bool__(self) -> bool:
        return bool(self.__net)

    def __len__(self) -> int:
        return len(self.__net)

    def __reduce_ex__(self, _: object) -> Any:
        return _same, (self.__net,)


def _same(net: nn.Module) -> nn.Module:
    return net
