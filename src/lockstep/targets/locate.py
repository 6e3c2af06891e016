"""From an import path and arguments to an object, as Hydra's `instantiate` does, with errors that say what to write.

Hydra's own hides why a user's module cannot be imported (facebookresearch/hydra#2844).
"""

import functools
import importlib
import inspect
import os
import pkgutil
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

from lockstep.config_error import ConfigError, as_typed, config_error, errors_as, nearest, require
from lockstep.schemas.coerce import coerce_value
from lockstep.schemas.target import ARGS, KEY, PARTIAL, RESERVED, nested
from lockstep.targets.edited import forget_young_caches
from lockstep.targets.frames import called_traceback

NOT_IMPORTED = "its module cannot be imported; mend it, or write another path."
PLAIN = (int, float, bool, str)
"""Types whose values are checked against a parameter's annotation."""


class UserCodeError(ConfigError):
    """The user's own code failed: their traceback, from their first frame on, and a sentence below it."""

    def __str__(self) -> str:
        return str(self.args[0])


def create(key: str, value: Any, filled: Mapping[str, Any] | None = None) -> Any:
    """What a target makes when it is called with its arguments, those that are targets themselves called first.

    Args:
        key: of the command line, for errors.
        filled: arguments that it gets if it has parameters of these names, and they are not given.

    Raises:
        ConfigError: there is no such target, or it takes other arguments.
    """
    if isinstance(value, list):
        return [create(f"{key}[{index}]", own) for index, own in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    made = {name: create(f"{key}.{name}", own) for name, own in value.items() if name not in RESERVED}
    if KEY not in value:
        return made
    call = locate(f"{key}.{KEY}", value[KEY])
    positional = create(f"{key}.{ARGS}", value.get(ARGS, []))
    named = arguments(key, call, made, filled or {}, whole=not (positional or value.get(PARTIAL)))
    if value.get(PARTIAL):
        return functools.partial(call, *positional, **named)
    with user_errors(f"{key}.{KEY}={value[KEY]}", "it raises this when it is called."):
        return call(*positional, **named)


def check(
    key: str, value: Mapping[str, Any], filled: Mapping[str, Any] | None = None, ours: Collection[str] = ()
) -> Any:
    """Find all targets of `value` and hold their arguments against their signatures, without a call. The outermost.

    Args:
        ours: arguments of the outermost that are not the user's to give.

    Raises:
        ConfigError: as `create`.
    """
    found: Any = None
    for own_key, own in nested(key, value):
        found = locate(f"{own_key}.{KEY}", own[KEY])
        given = {name: argument for name, argument in own.items() if name not in RESERVED}
        whole = not (own.get(ARGS) or own.get(PARTIAL))
        more = (filled or {}, whole, ours) if own is value else ({}, whole)
        arguments(own_key, found, given, *more)
    return found


def locate(key: str, path: Any) -> Any:
    """The object at an import path, its module imported.

    Raises:
        ConfigError: nothing can be called there.
        UserCodeError: its module raises while it is imported.
    """
    if not isinstance(path, str) or not all(part.isidentifier() for part in path.split(".")) or "." not in path:
        raise config_error(key, path, "it is no import path", f"{key}=package.module.Name")
    first, *rest = path.split(".")
    found: Any = _imported(key, path, first)
    for index, name in enumerate(rest, start=1):
        if not hasattr(found, name):
            if not isinstance(found, ModuleType) or not hasattr(found, "__path__"):
                raise _no_such_name(key, path, found, name)
            _imported(key, path, ".".join([first, *rest[:index]]), found)
        found = getattr(found, name)
    reason = f"it is a {type(found).__name__}, and not a class or a function"
    require(callable(found), key, path, reason, "one of them")
    return found


def _imported(key: str, path: str, name: str, parent: ModuleType | None = None) -> ModuleType:
    with user_errors(f"{key}={path}", NOT_IMPORTED):
        known = {*sys.modules}
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
        finally:
            forget_young_caches(sys.modules.keys() - known)
    if parent is not None:
        raise _no_such_name(key, path, parent, name.rpartition(".")[2])
    theirs = [str(Path.cwd()), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    near = nearest(name, [own.name for own in pkgutil.iter_modules(theirs)])
    hint = "the path of one that can be imported from this folder, or set PYTHONPATH to its folder"
    raise config_error(key, path, f"there is no module {name}{_meant(near)}", hint)


def _meant(near: str | None) -> str:
    return f" (did you mean {near}?)" if near else ""


def _no_such_name(key: str, path: str, found: Any, name: str) -> ConfigError:
    within = getattr(found, "__name__", path)
    names = [own for own in vars(found) if not own.startswith("_")]
    if isinstance(found, ModuleType) and hasattr(found, "__path__"):
        names += [own.name for own in pkgutil.iter_modules(found.__path__)]
    near = nearest(name, names)
    rest = path.removeprefix(f"{within}.{name}") if path.startswith(f"{within}.{name}.") else ""
    hint = f"{key}={within}.{near}{rest}" if near else f"the path of something that {within} has"
    return config_error(key, path, f"{within} has no {name}{_meant(near)}", hint)


def user_errors(override: str, reason: str) -> AbstractContextManager[None]:
    """Around code of the user's own: their error with its traceback, and the override that leads to it."""
    return errors_as(lambda error: UserCodeError(f"{called_traceback(error)}\n{override}: {reason}"))


def arguments(
    key: str,
    call: Callable[..., Any],
    given: Mapping[str, Any],
    filled: Mapping[str, Any],
    whole: bool = True,
    ours: Collection[str] = (),
) -> dict[str, Any]:
    """The arguments of a call: those given, whose plain types are made those of the annotations, and those filled in.

    Args:
        whole: whether no other arguments are to come, so that one that is missing is an error.
        ours: parameters that are not the user's to give.

    Raises:
        ConfigError: one is not taken, is of another type, or is missing.
    """
    try:
        parameters = inspect.signature(call).parameters
    except (ValueError, TypeError):  # some that are written in C have none
        return {**given}
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {name: each for name, each in parameters.items() if each.kind in kinds and name not in ours}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    title, hints, listed = getattr(call, "__qualname__", repr(call)), _hints(call), ", ".join(named) or "none"
    for name, value in given.items():
        if name not in named and (name in ours or not takes_any):
            near = nearest(name, named)
            typed = f"{key}.{near}={as_typed(value)}, or another of {listed}"
            hint = typed if near else f"one of those it takes: {listed}"
            raise config_error(f"{key}.{name}", value, f"{title} takes no such argument{_meant(near)}", hint)
    fitting = {name: _typed(f"{key}.{name}", hints.get(name), value) for name, value in given.items()}
    fitting |= {name: value for name, value in filled.items() if name in named and name not in given}
    for name, parameter in named.items():
        if whole and name not in fitting and parameter.default is parameter.empty:
            is_function = "." in key and not isinstance(call, type)
            later = f"{key}.{PARTIAL}=true to have it called later, or " if is_function else ""
            raise ConfigError(f"{key}.{name} is missing: {title} needs it; write {later}{key}.{name}=VALUE.")
    return fitting


def _hints(call: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of its parameters; none where they cannot be looked up."""
    try:
        return typing.get_type_hints(call.__init__ if isinstance(call, type) else call)  # type: ignore[misc]
    except Exception:
        return {}


def _typed(key: str, hint: Any, value: Any) -> Any:
    """The value as its annotation says, where that is a plain type: in YAML 1e3 is a float."""
    members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    options, optional = [own for own in members if own is not type(None)], type(None) in members
    if len(options) != 1 or options[0] not in PLAIN or (value is None and optional) or isinstance(value, Mapping):
        return value
    return coerce_value(options[0], key, value) if value is None or isinstance(value, (*PLAIN, list)) else value
