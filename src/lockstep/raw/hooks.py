"""Hooks, called as Lightning calls them: of callbacks in their order, then of the module."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from lockstep.targets.kinds import overrides, overrides_callback


class Hooks:
    """Which hooks somebody overrides is looked up once an epoch; all others cost nothing."""

    def __init__(self, trainer: Any, module: Any) -> None:
        self.trainer, self.module = trainer, module
        self.overridden: dict[str, list[Callable[..., Any]]] = {}
        self.methods: dict[str, Callable[..., Any] | None] = {}

    def refresh(self) -> None:
        """Look up anew: a callback may have changed what is overridden."""
        self.overridden.clear()
        self.methods.clear()

    def named(self, name: str) -> list[Callable[..., Any]]:
        """Return the overridden hooks of a name."""
        if name not in self.overridden:
            self.overridden[name] = [*self.of_callbacks(name), *self.of_module(name)]
        return self.overridden[name]

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call the hooks of a name; return what the last returns."""
        returned = None
        for hook in self.named(name):
            returned = hook(*arguments, **named)
        return returned

    def of_module(self, name: str) -> list[Callable[..., Any]]:
        return [getattr(self.module, name)] if overrides(self.module, name) else []

    def method(self, name: str) -> Callable[..., Any] | None:
        """Return a method of the module that it overrides; None: what Lightning does there is done by the loop."""
        if name not in self.methods:
            self.methods[name] = getattr(self.module, name) if overrides(self.module, name) else None
        return self.methods[name]

    def of_callbacks(self, name: str, monitoring: bool | None = None) -> list[Callable[..., Any]]:
        """Return those of callbacks: of all, of those alone that monitor what others log, or of those that do not."""
        return [
            partial(getattr(callback, name), self.trainer, self.module)
            for callback in self.trainer.callbacks
            if monitoring in (None, is_monitoring(callback)) and overrides_callback(callback, name)
        ]


def is_monitoring(callback: Any) -> bool:
    """Whether Lightning calls its on_train_epoch_end behind the module's."""
    return any(kind.__name__ in ("EarlyStopping", "Checkpoint") for kind in type(callback).__mro__)


def step_arguments(step: Callable[..., Any], batch: Any, batch_idx: int, loader: int | None = None) -> list[Any]:
    """Return what a step takes of batch, batch_idx and, where there are several loaders, dataloader_idx."""
    arguments = [batch, batch_idx] + ([] if loader is None else [loader])
    function = getattr(step, "__func__", step)
    if function not in POSITIONAL:
        POSITIONAL[function] = positional_parameters(step)
    return arguments[: POSITIONAL[function]]


POSITIONAL: "WeakKeyDictionary[Callable[..., Any], int | None]" = WeakKeyDictionary()
"""What `positional_parameters` returns, by function: it is asked for every batch, and keeps no module alive."""


def positional_parameters(step: Callable[..., Any]) -> int | None:
    """Return how many arguments a step takes by position; None: any number."""
    parameters = inspect.signature(step).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return sum(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
    )
