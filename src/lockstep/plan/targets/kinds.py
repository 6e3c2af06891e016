"""Methods of a user's objects: which are overridden, and how to replace one in an object. No import of Lightning."""

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

BASES = ("lightning.pytorch.core", "lightning.pytorch.callbacks.callback")  # the modules of Lightning's base classes
HOOKS = ("on_", "configure_")  # what the names of hooks begin with


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
