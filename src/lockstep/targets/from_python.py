"""Code given from Python, as a YAML file would name it: `run(model=Net)` is `_target_: package.module.Net`."""

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.config_error import ConfigError, as_typed, require
from lockstep.schemas.target import ARGS, KEY


def as_target(key: str, own: Any) -> dict[str, Any]:
    """The keys of a class, of a function, or of a functools.partial of one with its arguments; a mapping as it is.

    Raises:
        ConfigError: it is none of these, or has no import path.
    """
    if isinstance(own, Mapping):
        return {str(name): value for name, value in own.items()}
    call = own.func if isinstance(own, functools.partial) else own
    module, name = getattr(call, "__module__", None), getattr(call, "__qualname__", None)
    kind, reason = type(call).__name__, "an object is made on each rank, under the run's seed"
    has_path = callable(call) and module is not None and name is not None
    require(has_path, key, kind, reason, f"{key}={kind}, the class, or functools.partial({kind}, …)")
    reason = "it is defined within a function, and has no path"
    require("<" not in str(name), key, name, reason, "it at the top of a module or of a notebook's cell")
    named = {KEY: f"{module}.{name}"}
    return {**named, ARGS: list(own.args), **own.keywords} if isinstance(own, functools.partial) else named


def require_not_typed(own: Mapping[str, Any], overrides: Iterable[str]) -> None:
    """Refuse an override of a group that is given from Python: it would be lost."""
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        group, _, name = key.partition(".")
        if group in own:
            hint = f"{group}=functools.partial(…, {name}={as_typed(value)})" if name else f"{group} only once"
            raise ConfigError(f"{override}: {group} is given from Python; write {hint}.")
