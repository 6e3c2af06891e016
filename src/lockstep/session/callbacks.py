"""The Lightning callbacks that a plan names, created on each rank. Lightning is imported only if there are some."""

from collections.abc import Sequence
from typing import Any

from lockstep.config_error import require
from lockstep.plan import Plan
from lockstep.schemas.logger import UserCallback
from lockstep.schemas.target import KEY
from lockstep.targets.locate import create

SCHEDULER = "GradientAccumulationScheduler"


def create_callbacks(plan: Plan) -> list[Any]:
    """Create the callbacks that a plan names, in the order of the command; raise a ConfigError for another object."""
    callbacks = [create(choice.key, choice.call) for choice in plan.callbacks]
    for choice, callback in zip(plan.callbacks, callbacks, strict=True):
        check_callback(choice, type(callback), saves=not plan.trainer.barebones)  # before, a function was not called
    return callbacks


def check_callback(choice: UserCallback, cls: type, saves: bool) -> None:
    """Raise if a class is no callback of Lightning, or saves checkpoints in a run that `saves` none."""
    from lightning.pytorch.callbacks import Callback, Checkpoint

    reason = f"it makes a {cls.__name__}, and not a Callback of Lightning"
    require(issubclass(cls, Callback), f"{choice.key}.{KEY}", choice.call[KEY], reason, "the path of one")
    reason, hint = "trainer.barebones=true saves no checkpoint", "trainer.barebones=false, or without it"
    require(saves or not issubclass(cls, Checkpoint), "callbacks", cls.__name__, reason, hint)


def require_planned_steps(plan: Plan, callbacks: Sequence[Any]) -> None:
    """Raise if a callback changes the batches of an optimizer step: the plan has to know them."""
    for callback in callbacks:
        name, *bases = (kind.__name__ for kind in type(callback).__mro__)
        if SCHEDULER in (name, *bases):
            planned = name == SCHEDULER and {0: 1, **callback.scheduling} == plan.steps.accumulation
            reason = "it changes how many batches a step has, and the configuration does not say so"
            hint = "callbacks=gradient_accumulation_scheduler in its place"
            require(planned, "callbacks", name, reason, hint)
