"""User code passed from Python, as a YAML file would name it: `run(model=Net)` is `_target_: package.module.Net`.

That in `__main__`, a notebook's cells or a script, is sent to other processes by value.
"""

import functools
import pickle
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import cloudpickle

from lockstep.base.config_error import ConfigError, config_error, option_error, require
from lockstep.plan.schemas.groups import TARGETS, key_of
from lockstep.plan.schemas.plan_json import to_json
from lockstep.plan.schemas.target import ARGS, KEY

MAIN = "__main__"


def targets_of(user_code: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the targets of classes, functions, functools.partials or mappings, by group."""
    for group in user_code.keys() - TARGETS.keys():
        raise option_error("run", group, "this is no group that takes code", TARGETS)
    for override in overrides:
        if key_of(override).partition(".")[0] in user_code:
            raise ConfigError(f"{override}: this is passed from Python; write it there, or in the overrides alone.")
    return {group: _target(group, value) for group, value in user_code.items()}


def _target(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(name): argument for name, argument in value.items()}
    is_partial = isinstance(value, functools.partial)
    call = value.func if is_partial else value
    name, kind = getattr(call, "__qualname__", None), type(call).__name__
    reason = "it is neither a class nor a function at the top of a module, or of a notebook's cell"
    hint = f"{key}=CLASS, or functools.partial(CLASS, …): an object is created on each rank, under the run's seed"
    require(name is not None and "<" not in name, key, name or kind, reason, hint)
    if call.__module__ == MAIN:  # of another process's: Ray sends a script's class by value
        vars(sys.modules[MAIN]).setdefault(call.__qualname__, call)
    return {KEY: f"{call.__module__}.{name}"} | ({ARGS: list(value.args), **value.keywords} if is_partial else {})


def pickled_main(work: object) -> bytes | None:
    """Pickle the classes and functions of `__main__` that `work` names as targets; return None if there are none."""
    names = re.findall(rf"{KEY}\W+{MAIN}\.(\w+)", to_json(work))
    if not names:
        return None
    try:
        return bytes(cloudpickle.dumps({name: getattr(sys.modules[MAIN], name) for name in names}))
    except Exception as error:
        reason = f"it cannot be sent to the ranks ({type(error).__name__}: {error})"
        raise config_error(KEY, f"{MAIN}.{names[0]}", reason, "it into a file") from None


def restore_main(pickled: bytes) -> None:
    """Define what was pickled in this process's `__main__`."""
    vars(sys.modules[MAIN]).update(pickle.loads(pickled))
