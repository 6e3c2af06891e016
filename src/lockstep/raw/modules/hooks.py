"""Hooks are called as Lightning calls them: of callbacks in their order, then of the module."""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any


class Hooks:
    def __init__(self, trainer: Any, module: Any) -> None:
        self.trainer, self.module = trainer, module

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """What the module's own hook returns."""
        self.of_callbacks(name, *arguments, **named)
        return self.of_module(name, *arguments, **named)

    def of_callbacks(self, name: str, *arguments: Any, monitoring: bool | None = None, **named: Any) -> None:
        """Of all callbacks; or of those alone that monitor what others log, or of those that do not."""
        for callback in self.trainer.callbacks:
            if monitoring is None or monitors(callback) == monitoring:
                getattr(callback, name)(self.trainer, self.module, *arguments, **named)

    def of_module(self, name: str, *arguments: Any, **named: Any) -> Any:
        hook = getattr(self.module, name, None)
        return None if hook is None else hook(*arguments, **named)


def monitors(callback: Any) -> bool:
    """Whether Lightning calls its on_train_epoch_end behind the module's."""
    return any(kind.__name__ in ("EarlyStopping", "Checkpoint") for kind in type(callback).__mro__)


def step_arguments(step: Callable[..., Any], batch: Any, batch_idx: int, loader: int | None = None) -> list[Any]:
    """What a step takes of batch, batch_idx and, where there are several loaders, dataloader_idx."""
    given = [batch, batch_idx] + ([] if loader is None else [loader])
    return given[: places_of(step)]


@cache
def places_of(step: Callable[..., Any]) -> int | None:
    """How many arguments it takes by position; None: any number. Asked for every batch, so it is found once."""
    parameters = inspect.signature(step).parameters.values()
    if any(own.kind is own.VAR_POSITIONAL for own in parameters):
        return None
    return sum(own.kind in (own.POSITIONAL_ONLY, own.POSITIONAL_OR_KEYWORD) for own in parameters)
