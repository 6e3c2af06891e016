"""Objects from import paths and arguments, by Hydra's `instantiate`, with errors that name the key and show the cause.

Hydra's own hides why a user's module cannot be imported (facebookresearch/hydra#2844).
"""

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.machinery import PathFinder
from importlib.util import find_spec
from math import isfinite
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf

from lockstep.config_error import ConfigError, as_typed, config_error, errors_as, nearest, require
from lockstep.schemas.target import ARGS, KEY, PARTIAL, RECURSIVE, SPECIAL
from lockstep.targets.frames import MEMORY_HINT, has_user_frames, user_traceback

NUMERIC = {"int", "float", "Union", "Optional", "None", "NoneType", "Tensor"}
"""The words of an annotation that allows no text."""

OLD_NAME, NEW_NAME = "pytorch_lightning", "lightning.pytorch"
"""Lightning's two packages, whose classes are not the same: that of the old name is not supported."""


class UserCodeError(ConfigError):
    """The user's code failed: its traceback from the user's first frame on, and a sentence after it."""

    def __str__(self) -> str:
        return str(self.args[0])


def create(key: str, value: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Any:
    """Call a target with its arguments as Hydra's `instantiate` does, after a check of all paths and names.

    Args:
        key: of the command line, for errors.
        defaults: arguments to add if the target has parameters of these names.
    """
    call = check(key, value, defaults)
    parameters = parameters_of(call)
    added = {name: default for name, default in (defaults or {}).items() if name in parameters and name not in value}
    try:
        return instantiate({**value}, **added)
    except InstantiationException as error:
        named, inner = key, dict(value)
        for name in re.findall(r"full_key: (\S+)$", str(error))[:1]:  # of the target within that has failed
            named, inner = f"{key}.{name}", OmegaConf.select(OmegaConf.create(inner), name)
        with user_errors(f"{named}.{KEY}={inner[KEY]}", "it raises this when it is called."):
            raise error.__cause__ or error from None


def check(key: str, value: Any, defaults: Mapping[str, Any] | None = None) -> Any:
    """Check a target and those among its arguments against their signatures, without a call; return the outermost."""
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            check(f"{key}[{index}]", item)
    if not isinstance(value, Mapping):
        return None
    for name, item in value.items() if value.get(RECURSIVE, True) else ():
        check(f"{key}.{name}", item)
    if KEY not in value:
        return None
    call = locate(f"{key}.{KEY}", value[KEY])
    keywords = {name: argument for name, argument in value.items() if name not in SPECIAL}
    check_arguments(key, call, value.get(ARGS, []), keywords, defaults or {}, complete=not value.get(PARTIAL, False))
    return call


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
    """Raise a UserCodeError, with the traceback and the override, for any error of the user's code within.

    An error of a library that no code of the user's has called is a sentence.
    """

    def convert(error: Exception) -> ConfigError:
        text = user_traceback(error, is_called=True)
        if not has_user_frames(error) and not isinstance(error, ImportError):
            if MEMORY_HINT in text:
                return ConfigError(f"{override}: memory runs out when it is called; {MEMORY_HINT}.")
            return ConfigError(f"{override}: it raises {type(error).__name__}: {' '.join(str(error).split())}.")
        return UserCodeError(f"{text}\n{override}: {reason}")

    return errors_as(convert)


def parameters_of(call: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a call that take keywords, by name."""
    try:
        signature = inspect.signature(call).parameters
    except (ValueError, TypeError):  # of some functions in C
        return {}
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: parameter for name, parameter in signature.items() if parameter.kind in kinds}


def check_arguments(
    key: str,
    call: Callable[..., Any],
    positional: Sequence[Any],
    keywords: Mapping[str, Any],
    defaults: Mapping[str, Any],
    complete: bool,
) -> None:
    """Raise for an argument that a call does not take, a text for a number or, if `complete`, one that is missing."""
    try:
        signature = inspect.signature(functools.partial(call, *positional)).parameters
        outer = inspect.signature(call, follow_wrapped=False).parameters  # a wrapper may take more than it shows
    except (ValueError, TypeError):  # of some functions in C, or too many arguments
        return
    parameters = parameters_of(functools.partial(call, *positional))
    takes_any = any(each.kind is each.VAR_KEYWORD for each in (*signature.values(), *outer.values()))
    title = getattr(call, "__qualname__", repr(call))
    for name, value in keywords.items():
        if name not in parameters and not takes_any:
            near, listed = nearest(name, parameters), ", ".join(parameters)
            others = f"one of: {listed}" if listed else f"~{key}.{name} to leave it out"
            hint = f"{key}.{near}={as_typed(value)}, or another of {listed}" if near else others
            raise config_error(f"{key}.{name}", value, f"{title} takes no such argument{_suggestion(near)}", hint)
        if name in parameters:
            _check_number(f"{key}.{name}", value, title, _words(parameters[name].annotation))
    given = {*keywords, *defaults}
    for name, parameter in parameters.items() if complete else ():
        if name not in given and parameter.default is parameter.empty:
            raise ConfigError(f"{key}.{name} is missing: {title} needs it; write {key}.{name}=VALUE.")


def _words(annotation: Any) -> set[str]:
    return {*re.findall(r"\w+", str(annotation))} - {"class", "typing", "torch"}


def _check_number(key: str, value: object, title: str, annotation: set[str]) -> None:
    """Raise for a text where an annotation allows numbers, and tensors perhaps, and for 1e3, a float, as an int."""
    numeric = bool(annotation & {"int", "float"}) and annotation <= NUMERIC
    require(not (numeric and isinstance(value, str)), key, value, f"{title} takes a number", f"{key}=0.1, for example")
    if isinstance(value, float) and numeric and not annotation & {"float", "Tensor"}:
        raise config_error(
            key, value, f"{title} takes a whole number", f"{key}={round(value) if isfinite(value) else 1}"
        )
