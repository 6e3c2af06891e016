"""The Lightning callbacks that a plan names, created on each rank."""

from collections.abc import Iterable
from typing import Any

from lockstep.config_error import require
from lockstep.plan import Plan
from lockstep.schemas.callback import SCHEDULER
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
        name = type(callback).__name__
        reason = f"it makes a {name}, and not a Callback of Lightning"
        is_callback = any(kind.startswith("lightning.") and kind.endswith(".Callback") for kind in _kinds(callback))
        require(is_callback, f"{choice.key}.{KEY}", choice.call[KEY], reason, "the path of one")
        saves = any(kind.endswith(".Checkpoint") for kind in _kinds(callback))
        reason, hint = "trainer.barebones=true saves no checkpoint", "trainer.barebones=false, or without it"
        require(plan.saves or not saves, "callbacks", name, reason, hint)
    return callbacks


def require_planned_steps(plan: Plan, callbacks: Iterable[Any]) -> None:
    """Raise if a callback changes the batches of an optimizer step, which the plan has to know for weights and record.

    Raises:
        ConfigError: names the callback: one of the module itself, or of a class derived from Lightning's.
    """
    for callback in callbacks:
        name = type(callback).__name__
        if any(kind.endswith(f".{SCHEDULER}") for kind in _kinds(callback)):
            planned = name == SCHEDULER and {0: 1, **callback.scheduling} == plan.steps.accumulation
            reason = "it changes how many batches a step has, and the configuration does not say so"
            require(planned, "callbacks", name, reason, "callbacks=gradient_accumulation_scheduler in its place")


def _kinds(callback: Any) -> list[str]:
    """Return the full names of a callback's class and its base classes."""
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(callback).__mro__]
