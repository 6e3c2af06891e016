"""User code passed from Python, as a YAML file would name it: `run(model=Net)` is `_target_: package.module.Net`."""

import functools
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.config_error import ConfigError, option_error, require
from lockstep.schemas.groups import USER_CODE
from lockstep.schemas.target import ARGS, KEY


def targets_of(user_code: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the targets of classes, functions, functools.partials or mappings, by group."""
    for group in user_code.keys() - USER_CODE.keys():
        raise option_error("run", group, "this is no group that takes your own code", USER_CODE)
    for override in overrides:
        if override.lstrip("+~").partition("=")[0].partition(".")[0] in user_code:
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
    if call.__module__ == "__main__":  # of another process's: Ray sends a script's class by value
        vars(sys.modules["__main__"]).setdefault(call.__qualname__, call)
    return {KEY: f"{call.__module__}.{name}"} | ({ARGS: list(value.args), **value.keywords} if is_partial else {})
