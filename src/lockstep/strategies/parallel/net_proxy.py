"""A module's `net` computed in another way, by replicas or in stages, while its weights keep their names.

An instance attribute is found before the submodule of its name: `module.net` is the proxy from then on, and
`parameters()`, `state_dict()` and `named_modules()` go on with the submodule.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def replace_forward(module: nn.Module, net: nn.Module, compute: Callable[..., Any]) -> None:
    """Have `module.net(…)` call `compute` instead of its net, until the module is given another net."""
    vars(module)["net"] = NetProxy(net, compute)


class NetProxy:
    """Called like a net, it calls `compute`; all attributes are the net's. A copy, or a pickled one, is a plain net."""

    def __init__(self, net: Any, compute: Callable[..., Any]) -> None:
        object.__setattr__(self, "_NetProxy__net", net)
        object.__setattr__(self, "_NetProxy__compute", compute)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        is_tracing = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        if is_tracing and len({weight.device for weight in self.__net.parameters()}) == 1:
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
