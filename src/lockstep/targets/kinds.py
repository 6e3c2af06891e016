"""The kinds of a user's objects, which methods they override, and methods replaced in one object.

Lightning is never imported here: whoever defines such a class has imported it.
"""

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

CALLBACK = "lightning.pytorch.callbacks.callback"


def derives_from(kind: Any, package: str, name: str = "LightningModule") -> bool:
    """Whether a class derives from one of a package, which nobody may have imported."""
    return package in sys.modules and isinstance(kind, type) and issubclass(kind, getattr(sys.modules[package], name))


def is_lightning_module(value: Any) -> bool:
    return derives_from(type(value), "lightning.pytorch")


def is_data_module(value: Any) -> bool:
    return derives_from(type(value), "lightning.pytorch", "LightningDataModule")


def is_combined_loader(value: Any) -> bool:
    return derives_from(type(value), "lightning.pytorch.utilities", "CombinedLoader")


def overrides(module: Any, name: str) -> bool:
    """Whether a LightningModule or LightningDataModule defines a method itself."""
    method, core = getattr(module, name, None), "lightning.pytorch.core"
    kinds = (kind for kind in type(module).__mro__ if kind.__module__.startswith(core) and name in vars(kind))
    base = next((vars(kind)[name] for kind in kinds), None)
    return method is not None and getattr(method, "__func__", method) is not base


def overrides_callback(callback: Any, name: str) -> bool:
    """Whether a callback of Lightning defines a hook itself."""
    kind = next((kind for kind in type(callback).__mro__ if name in vars(kind)), None)
    return name in vars(callback) or getattr(kind, "__module__", CALLBACK) != CALLBACK


def replace_method(owner: Any, name: str, method: Callable[..., Any]) -> None:
    """Replace a method of one object by one whose first argument is the original, past nn.Module.__setattr__.

    Lightning unwraps a method once to read its parameters.
    """
    original = getattr(owner, name)

    @wraps(original)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        return method(original, *arguments, **options)

    wrapped.__wrapped__ = inspect.unwrap(original)
    object.__setattr__(owner, name, wrapped)
