"""The Lightning callbacks that a plan names, made on each rank."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from lockstep.config_error import config_error, require
from lockstep.plan import Plan
from lockstep.schemas.callback import SCHEDULER
from lockstep.schemas.target import KEY
from lockstep.targets.source_code import tree_of


def create_callbacks(plan: Plan) -> list[Any]:
    """Create the callbacks that a plan names, in the order of the command.

    Raises:
        ConfigError: a target makes no callback.
    """
    if not plan.callbacks:
        return []
    from lockstep.targets.locate import create  # for the user's code alone

    made = [(choice, create(choice.key, choice.call)) for choice in plan.callbacks]
    for choice, own in made:
        reason = f"it makes a {type(own).__name__}, and not a Callback of Lightning"
        require(is_callback(own), f"{choice.key}.{KEY}", choice.call[KEY], reason, "the path of one")
        saves = any(kind.__name__ == "Checkpoint" for kind in type(own).__mro__)
        reason, hint = "trainer.barebones=true saves no checkpoint", "trainer.barebones=false, or without it"
        require(plan.saves or not saves, "callbacks", type(own).__name__, reason, hint)
    return [own for _, own in made]


def require_planned_steps(plan: Plan, callbacks: Iterable[Any]) -> None:
    """Refuse a callback by which an optimizer step has another number of batches than the plan knows, for weights and
    record: one of the module's own, or of a class derived from Lightning's.

    Raises:
        ConfigError: names the callback.
    """
    for own in callbacks:
        name = type(own).__name__
        if any(kind.__name__ == SCHEDULER for kind in type(own).__mro__):
            planned = name == SCHEDULER and {0: 1, **own.scheduling} == plan.steps.accumulation
            reason = "it changes how many batches a step has, and the configuration does not say so"
            require(planned, "callbacks", name, reason, "callbacks=gradient_accumulation_scheduler in its place")


def is_callback(made: Any) -> bool:
    return any(kind.__name__ == "Callback" and kind.__module__.startswith("lightning.") for kind in type(made).__mro__)


def require_public(callbacks: Iterable[Any], known: Collection[str]) -> None:
    """Refuse a callback that asks more of a trainer than the raw engine has.

    Args:
        known: the names that it has; behind one without a dot anything may follow.

    Raises:
        ConfigError: names the callback and what it asks for.
    """
    for callback in callbacks:
        for name in asked_of_trainer(type(callback)):
            if not any(f"{name}.".startswith(f"{prefix}.") for prefix in known):
                reason = f"it asks for trainer.{name}, which engine=raw has not"
                raise config_error("callbacks", type(callback).__name__, reason, "engine=lightning, or without it")


def asked_of_trainer(kind: type) -> Iterator[str]:
    """Return the dotted names that a callback's methods, inherited ones too, read of their `trainer`."""
    for own in kind.__mro__:
        if own is object or own.__module__ == "lightning.pytorch.callbacks.callback":
            continue
        if (tree := tree_of(own)) is None:
            continue
        inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and id(node) not in inner:
                root, _, name = ast.unparse(node).partition(".")
                if root == "trainer":
                    yield re.split(r"[\[(]", name)[0]  # of optimizers[0].param_groups: optimizers
