"""The Lightning callbacks that a plan names, created on each rank."""

from collections.abc import Iterable
from typing import Any

from lockstep.config_error import require
from lockstep.plan import Plan
from lockstep.schemas.callback import SCHEDULER, UserCallback
from lockstep.schemas.target import KEY


def create_callbacks(plan: Plan) -> list[Any]:
    """Create the callbacks that a plan names, in the order of the command.

    Raises:
        ConfigError: a target makes no callback, or one that saves checkpoints in a run that saves none.
    """
    if not plan.callbacks:
        return []
    from lockstep.targets.locate import create  # for the user's code alone

    callbacks = [create(choice.key, choice.call) for choice in plan.callbacks]
    for choice, callback in zip(plan.callbacks, callbacks, strict=True):
        check_callback(choice, type(callback), plan.saves)
    return callbacks


def check_callback(choice: UserCallback, cls: type, saves: bool) -> None:
    """Check the class of a callback.

    Args:
        saves: whether the run saves checkpoints.

    Raises:
        ConfigError: it is no callback of Lightning, or saves checkpoints in a run that saves none.
    """
    name, kinds = cls.__name__, _kinds(cls)
    reason = f"it makes a {name}, and not a Callback of Lightning"
    is_callback = any(kind.startswith("lightning.") and kind.endswith(".Callback") for kind in kinds)
    require(is_callback, f"{choice.key}.{KEY}", choice.call[KEY], reason, "the path of one")
    reason, hint = "trainer.barebones=true saves no checkpoint", "trainer.barebones=false, or without it"
    require(saves or not any(kind.endswith(".Checkpoint") for kind in kinds), "callbacks", name, reason, hint)


def require_planned_steps(plan: Plan, callbacks: Iterable[Any]) -> None:
    """Raise if a callback changes the batches of an optimizer step, which the plan has to know for weights and record.

    Raises:
        ConfigError: names the callback: one of the module itself, or of a class derived from Lightning's.
    """
    for callback in callbacks:
        name = type(callback).__name__
        if any(kind.endswith(f".{SCHEDULER}") for kind in _kinds(type(callback))):
            planned = name == SCHEDULER and {0: 1, **callback.scheduling} == plan.steps.accumulation
            reason = "it changes how many batches a step has, and the configuration does not say so"
            require(planned, "callbacks", name, reason, "callbacks=gradient_accumulation_scheduler in its place")


def _kinds(cls: type) -> list[str]:
    """Return the full names of a class and its base classes."""
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in cls.__mro__]
