"""Objects from import paths and arguments, as Hydra's `instantiate`, with errors that name the key and show the cause.

Hydra's own hides why a user's module cannot be imported (facebookresearch/hydra#2844).
"""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import Any

from lockstep.config_error import ConfigError, as_typed, config_error, errors_as, nearest, require
from lockstep.schemas.target import ARGS, KEY, PARTIAL
from lockstep.targets.frames import user_traceback

OLD_NAME, NEW_NAME = "pytorch_lightning", "lightning.pytorch"
"""Lightning's two packages, whose classes are not the same: that of the old name is not supported."""


class UserCodeError(ConfigError):
    """The user's code failed: its traceback from the user's first frame on, and a sentence after it."""

    def __str__(self) -> str:
        return str(self.args[0])


def create(key: str, value: Any, defaults: Mapping[str, Any] | None = None, calls: bool = True) -> Any:
    """Call a target with its arguments, inner targets first; lists and mappings are created item by item.

    Args:
        key: of the command line, for errors.
        defaults: arguments to add if the target has parameters of these names.
        calls: False: return the class or function instead of calling it.
    """
    if isinstance(value, list):
        return [create(f"{key}[{index}]", item, calls=calls) for index, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    created = {name: create(f"{key}.{name}", item, calls=calls) for name, item in value.items() if name != KEY}
    if KEY not in value:
        return created
    call = locate(f"{key}.{KEY}", value[KEY])
    positional, is_partial = created.pop(ARGS, []), created.pop(PARTIAL, False)
    keywords = checked_arguments(key, call, positional, created, defaults or {}, complete=not is_partial)
    if not calls:
        return call
    if is_partial:
        return functools.partial(call, *positional, **keywords)
    with user_errors(f"{key}.{KEY}={value[KEY]}", "it raises this when it is called."):
        return call(*positional, **keywords)


def check(key: str, value: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Any:
    """Check a target and those among its arguments against their signatures, without a call; return the outermost."""
    return create(key, value, defaults, calls=False)


def locate(key: str, path: Any) -> Any:
    """Import the class or function at an import path."""
    if not isinstance(path, str) or "." not in path or not all(part.isidentifier() for part in path.split(".")):
        raise config_error(key, path, "it is no import path", f"{key}=package.module.Name")
    from lockstep.random_state import preserve_generators  # imports torch; a file may call seed_everything

    names, target = path.split("."), None
    with user_errors(f"{key}={path}", "its module cannot be imported."), preserve_generators():
        for count, name in enumerate(names, start=1):
            try:
                module = None if hasattr(target, name) else importlib.import_module(".".join(names[:count]))
            except ModuleNotFoundError as error:
                if not f"{path}.".startswith(f"{error.name}."):
                    raise  # a module that the user's imports
                raise _missing_name(key, path, name, target) from None
            target = getattr(target, name, module)
    reason = f"it is a {type(target).__name__}, and not a class or a function"
    require(callable(target), key, path, reason, "one of them")
    fits = OLD_NAME not in {base.__module__.partition(".")[0] for base in getattr(target, "__mro__", ())}
    renamed = path.replace(OLD_NAME, NEW_NAME, 1)
    hint = f"{key}={renamed}" if path.startswith(OLD_NAME) else f"import {NEW_NAME} as pl in its file"
    require(fits, key, path, f"it derives from {OLD_NAME}, not from lightning", hint)
    return target


def require_package(key: str, path: Any) -> None:
    """Raise if an import path names no package or module, as far as this shows without importing one."""
    *names, _ = str(path).split(".")
    folders: list[str] | None = None
    for count, name in enumerate(names, start=1):
        module = ".".join(names[:count])
        if not name.isidentifier() or module in sys.modules:
            return
        spec = find_spec(name) if folders is None else PathFinder.find_spec(name, folders)
        if spec is None:
            raise _missing_name(key, path, module, None)
        if spec.origin is not None:
            return  # a file, which may define the next name
        folders = list(spec.submodule_search_locations or ())


def _missing_name(key: str, path: str, name: str, parent: Any) -> ConfigError:
    """Return the error for a name that a module or a class does not have; without a parent, for a missing module."""
    if parent is None:
        hint = "the path of one that can be imported from this folder, or set PYTHONPATH to its folder"
        return config_error(key, path, f"there is no module {name}", hint)
    near = nearest(name, [attribute for attribute in dir(parent) if not attribute.startswith("_")])
    if parent.__name__ == "__main__":
        reason, hint = f"no notebook's cell or script defines {name} here", "its class into a file, or define it first"
        return config_error(key, path, reason, hint)
    corrected = ".".join(str(near) if part == name else part for part in path.split("."))
    hint = f"{key}={corrected}" if near else "another path"
    return config_error(key, path, f"{parent.__name__} has no {name}{_suggestion(near)}", hint)


def _suggestion(near: str | None) -> str:
    return f" (did you mean {near}?)" if near else ""


def user_errors(override: str, reason: str) -> AbstractContextManager[None]:
    """Raise a UserCodeError, with the traceback and the override, for any error of the user's code within."""
    return errors_as(lambda error: UserCodeError(f"{user_traceback(error, is_called=True)}\n{override}: {reason}"))


def checked_arguments(
    key: str,
    call: Callable[..., Any],
    positional: Sequence[Any],
    keywords: Mapping[str, Any],
    defaults: Mapping[str, Any],
    complete: bool,
) -> dict[str, Any]:
    """Return the keyword arguments of a call, and those of `defaults` that it takes; if `complete`, none is missing."""
    try:
        signature = inspect.signature(functools.partial(call, *positional)).parameters
        outer = inspect.signature(call, follow_wrapped=False).parameters  # a wrapper may take more than it shows
    except (ValueError, TypeError):  # of some functions in C, or too many arguments
        return {**keywords}
    parameters = {
        name: each for name, each in signature.items() if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    takes_any = any(each.kind is each.VAR_KEYWORD for each in (*signature.values(), *outer.values()))
    title = getattr(call, "__qualname__", repr(call))
    for name, value in keywords.items():
        if name not in parameters and not takes_any:
            near, listed = nearest(name, parameters), ", ".join(parameters)
            others = f"one of: {listed}" if listed else f"~{key}.{name} to leave it out"
            hint = f"{key}.{near}={as_typed(value)}, or another of {listed}" if near else others
            raise config_error(f"{key}.{name}", value, f"{title} takes no such argument{_suggestion(near)}", hint)
    arguments = {**{name: value for name, value in defaults.items() if name in parameters}, **keywords}
    for name, parameter in parameters.items() if complete else ():
        if name not in arguments and parameter.default is parameter.empty:
            raise ConfigError(f"{key}.{name} is missing: {title} needs it; write {key}.{name}=VALUE.")
    return arguments
