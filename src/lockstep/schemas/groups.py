"""The config groups: those with typed options, by name, and those whose options are targets."""

from typing import Any, get_args, get_type_hints

from lockstep import schemas
from lockstep.schemas.target import Target
from lockstep.strategies import STRATEGIES

GROUPS: dict[str, dict[str, Any]] = {
    "engine": {name: kind for kind in get_args(schemas.Engine) for name in get_args(get_type_hints(kind)["name"])},
    "strategy": {**STRATEGIES},
}
"""The type of each option of the groups with typed options."""

TARGETS: dict[str, type[Target]] = {
    "model": schemas.Module,
    "data": schemas.Data,
    "optimizer": Target,
    "scheduler": Target,
    "logger": schemas.Logger,
    "callbacks": schemas.Callback,
}
"""The groups whose options are targets, of Lockstep and of users alike."""

PARTS = ("optimizer", "scheduler")
"""The groups that a model refers to, as `${optimizer}`: they are options of no other use."""

SEVERAL = ("logger", "callbacks")
"""The groups that take several options: `logger=[csv,tensorboard]`; the keys of an option are `logger.csv.KEY`."""
