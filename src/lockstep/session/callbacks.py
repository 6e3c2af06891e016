"""The Lightning callbacks that a plan names; and hooks, those of callbacks in their order, then the module's.

Lightning is imported only if there are callbacks.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from inspect import Parameter
from typing import Any

from lockstep.config_error import require
from lockstep.plan import Plan
from lockstep.schemas.target import KEY
from lockstep.schemas.target import Callback as CallbackTarget
from lockstep.targets.kinds import overrides
from lockstep.targets.locate import create

SCHEDULER = "GradientAccumulationScheduler"
Hook = Callable[..., Any]
TAKES: dict[Any, int] = {Parameter.POSITIONAL_ONLY: 1, Parameter.POSITIONAL_OR_KEYWORD: 1, Parameter.VAR_POSITIONAL: 3}
"""How many of the three arguments of a step a parameter takes by position, by its kind."""


def create_callbacks(plan: Plan) -> list[Any]:
    """Create the callbacks that a plan names, in the order of the command; raise a ConfigError for another object."""
    callbacks = [create(choice.key, choice.call) for choice in plan.callbacks]
    for choice, callback in zip(plan.callbacks, callbacks, strict=True):
        check_callback(choice, type(callback), saves=not plan.trainer.barebones)  # before, a function was not called
    return callbacks


def check_callback(choice: CallbackTarget, cls: type, saves: bool) -> None:
    """Raise if a class is no callback of Lightning, or saves checkpoints in a run that `saves` none."""
    from lightning.pytorch.callbacks import Callback, Checkpoint

    reason = f"it makes a {cls.__name__}, and not a Callback of Lightning"
    require(issubclass(cls, Callback), f"{choice.key}.{KEY}", choice.call[KEY], reason, "the path of one")
    reason, hint = "trainer.barebones=true saves no checkpoint", "trainer.barebones=false, or without it"
    require(saves or not issubclass(cls, Checkpoint), "callbacks", cls.__name__, reason, hint)


def require_planned_steps(plan: Plan, callbacks: Sequence[Any]) -> None:
    """Raise if a callback changes the batches of an optimizer step, or the strategy cannot have it."""
    for callback in callbacks:
        kind = type(callback)
        plan.strategy.check_callback(plan, f"{kind.__module__}.{kind.__qualname__}")
        name, *bases = (kind.__name__ for kind in kind.__mro__)
        if SCHEDULER in (name, *bases):
            planned = name == SCHEDULER and {0: 1, **callback.scheduling} == plan.steps.accumulation
            reason = "it changes how many batches a step has, and the configuration does not say so"
            hint = "callbacks=gradient_accumulation_scheduler in its place"
            require(planned, "callbacks", name, reason, hint)


class Hooks:
    """Looks up once which hooks are overridden; all others cost nothing. `overridden` may be cleared."""

    def __init__(self, trainer: Any, module: Any) -> None:
        self.trainer, self.module = trainer, module
        self.overridden: dict[str, list[Hook]] = {}
        self.positional: dict[str, int] = {}

    def named(self, name: str) -> list[Hook]:
        if name not in self.overridden:
            self.overridden[name] = [*self.of_callbacks(name), *self.of_module(name)]
        return self.overridden[name]

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call the hooks of a name; return what the last one returns."""
        returned = None
        for hook in self.named(name):
            returned = hook(*arguments, **options)
        return returned

    def of_module(self, name: str) -> list[Hook]:
        return [getattr(self.module, name)] if overrides(self.module, name) else []

    def method(self, name: str, default: Hook) -> Hook:
        """Return the module's method if it overrides it, else the default. No callback has a hook of such a name."""
        if name not in self.overridden:
            self.overridden[name] = self.of_module(name)
        return self.overridden[name][0] if self.overridden[name] else default

    def of_callbacks(self, name: str, monitoring: bool | None = None) -> list[Hook]:
        """Return the hooks of all callbacks; `monitoring` leaves those that monitor logged values, or the others."""
        return [
            partial(getattr(callback, name), self.trainer, self.module)
            for callback in self.trainer.callbacks
            if monitoring in (None, is_monitoring(callback)) and overrides(callback, name)
        ]

    def step_arguments(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        """Return those of batch, batch_idx and dataloader_idx that a step of the module takes by position."""
        if name not in self.positional:
            parameters = inspect.signature(getattr(self.module, name)).parameters.values()
            self.positional[name] = sum(TAKES.get(parameter.kind, 0) for parameter in parameters)
        return arguments[: self.positional[name]]


def is_monitoring(callback: Any) -> bool:
    """Whether Lightning calls a callback's on_train_epoch_end after the module's."""
    return any(kind.__name__ in ("EarlyStopping", "Checkpoint") for kind in type(callback).__mro__)
