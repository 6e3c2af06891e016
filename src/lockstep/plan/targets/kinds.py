"""The kinds of a user's objects, which methods they override, and methods replaced in one object.

Lightning is never imported here: whoever defines such a class has imported it.
"""

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

BASES = ("lightning.pytorch.core", "lightning.pytorch.callbacks.callback")  # the modules of Lightning's base classes
HOOKS = ("on_", "configure_")  # what the names of hooks begin with


def derives_from(kind: Any, package: str, name: str = "LightningModule") -> bool:
    """Whether a class derives from one of a package, which nobody may have imported."""
    return package in sys.modules and isinstance(kind, type) and issubclass(kind, getattr(sys.modules[package], name))


def is_lightning_module(value: Any) -> bool:
    return derives_from(type(value), "lightning.pytorch")


def is_data_module(value: Any) -> bool:
    return derives_from(type(value), "lightning.pytorch", "LightningDataModule")


def is_combined_loader(value: Any) -> bool:
    return derives_from(type(value), "lightning.pytorch.utilities", "CombinedLoader")


def overrides(owner: Any, name: str) -> bool:
    """Whether a LightningModule, a LightningDataModule or a callback of Lightning defines a method itself."""
    kind = next((kind for kind in type(owner).__mro__ if name in vars(kind)), None)
    is_overridden = name in vars(owner) or (kind is not None and not kind.__module__.startswith(BASES))
    return is_overridden and getattr(owner, name) is not None


def overridden_hooks(module: Any) -> tuple[str, ...]:
    """Return the names of Lightning's hooks that a LightningModule overrides."""
    base = sys.modules["lightning.pytorch"].LightningModule
    hooks = [name for name in dir(base) if name.startswith(HOOKS) and callable(getattr(base, name))]
    return tuple(name for name in hooks if overrides(module, name))


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
