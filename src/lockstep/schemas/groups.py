"""The options of each config group by name, and the groups that take user code."""

from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from lockstep import schemas
from lockstep.schemas.target import Target
from lockstep.strategies.registry import STRATEGIES


@dataclass(frozen=True)
class NoOption:
    """`none`, in a group that takes several options."""

    name: Literal["none"]


def _by_name(*kinds: type) -> dict[str, type]:
    return {name: kind for kind in kinds for name in get_args(get_type_hints(kind)["name"])}


GROUPS: dict[str, dict[str, Any]] = {
    "engine": _by_name(*get_args(schemas.Engine)),
    "strategy": {**STRATEGIES},
    "model": _by_name(*get_args(schemas.Model)),
    "task": _by_name(*get_args(schemas.BuiltInTask)),
    "data": _by_name(*get_args(schemas.Data)),
    "optimizer": _by_name(*get_args(schemas.Optimizer)),
    "scheduler": _by_name(*get_args(schemas.Scheduler)),
    "logger": _by_name(*get_args(schemas.Logger), NoOption),
    "callbacks": _by_name(NoOption),
}
"""The type of each option."""

USER_CODE: dict[str, type[Target]] = {
    "model": schemas.UserModel,
    "task": schemas.UserTask,
    "data": schemas.UserData,
    "optimizer": schemas.UserOptimizer,
    "scheduler": schemas.UserScheduler,
    "logger": schemas.UserLogger,
    "callbacks": schemas.UserCallback,
}
"""The groups that take a `_target_` of the user's."""

SEVERAL = ("logger", "callbacks")
"""The groups that take several options: `logger=[csv,tensorboard]`; the keys of an option are `logger.csv.KEY`."""
