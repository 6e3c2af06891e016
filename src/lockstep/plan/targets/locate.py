"""Objects from import paths and arguments, by Hydra's `instantiate`, with errors that show the cause (hydra#2844)."""

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf

from lockstep.base.config_error import ConfigError, config_error, errors_as, nearest, require
from lockstep.plan.schemas.target import ARGS, KEY, PARTIAL, RECURSIVE, SPECIAL, Data, Module
from lockstep.plan.targets.frames import MEMORY_HINT, UserCodeError, has_user_frames, user_traceback

NUMERIC = {"int", "float", "Union", "Optional", "None", "NoneType", "Tensor"}
"""The words of an annotation that allows no text."""

FROM_DATA = ("sample_shape", "num_classes", "num_outputs")
"""Arguments of a module and its net that come from its data, as LightningCLI links arguments."""


importing: list[str] = []
"""The user's modules that this process imports now; `run` refuses to start from within: each rank would do so, too."""


def create(key: str, value: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Any:
    """Check a target and call it as `instantiate` does, with those of the `defaults` that it has parameters for."""
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
    call = None
    if isinstance(value, Mapping):
        for name, item in value.items() if value.get(RECURSIVE, True) else ():
            check(f"{key}.{name}", item)
        if KEY in value:
            call = locate(f"{key}.{KEY}", value[KEY])
            _check_arguments(key, call, value, defaults or {})
    return call


def check_partials(model: Module) -> None:
    """Check the optimizer and the schedule, so that wrong values are told by the keys that were typed."""
    import torch

    for part in ("optimizer", "scheduler"):
        call, key = model.call.get(part), model.key_of(part)
        if not isinstance(call, Mapping) or KEY not in call:
            continue
        check(key, call if part == "scheduler" else {**call, ARGS: [None]})
        if part == "optimizer" and callable(optimizer := create(key, call)):
            with user_errors(f"{key}.{KEY}={call[KEY]}", "it raises this when it is called."):
                optimizer([torch.nn.Parameter(torch.zeros(2, 2))])


def locate(key: str, path: Any) -> Any:
    """Import the class or function at an import path."""
    if not isinstance(path, str) or "." not in path or not all(part.isidentifier() for part in path.split(".")):
        raise config_error(key, path, "it is no import path", f"{key}=PACKAGE.MODULE.NAME")
    from lockstep.base.random_state import preserve_generators  # imports torch; a file may call seed_everything

    names, target = path.split("."), None
    with user_errors(f"{key}={path}", "its module cannot be imported."), preserve_generators():
        for count, name in enumerate(names, start=1):
            importing.append(module_name := ".".join(names[:count]))
            try:
                module = None if hasattr(target, name) else importlib.import_module(module_name)
            except ModuleNotFoundError as error:
                if not f"{path}.".startswith(f"{error.name}."):
                    raise  # a module that the user's imports
                raise _missing_name(key, path, name, target) from None
            finally:
                importing.pop()
            target = getattr(target, name, module)
    reason = f"it is a {type(target).__name__}, and not a class or a function"
    require(callable(target), key, path, reason, "the path of one")
    if any(base.__module__.startswith("pytorch_lightning.") for base in getattr(target, "__mro__", ())):
        hint = "import lightning.pytorch as pl in its file"  # the classes of the other package are others
        raise config_error(key, path, "it derives from pytorch_lightning, not from lightning", hint)
    return target


def _missing_name(key: str, path: str, name: str, parent: Any) -> ConfigError:
    """Return the error for a name that a module or a class does not have; without a parent, for a missing module."""
    if parent is None:
        hint = "the path of one that can be imported from this folder, or set PYTHONPATH to its folder"
        return config_error(key, path, f"there is no module {name}", hint)
    names = [attribute for attribute in dir(parent) if callable(getattr(parent, attribute))]
    near, reason = nearest(name, names), f"{parent.__name__} has no {name}"
    if near is None:
        return config_error(key, path, reason, "the path of a class or a function")
    corrected = ".".join(near if part == name else part for part in path.split("."))
    return config_error(key, path, f"{reason} (did you mean {near}?)", f"{key}={corrected}")


def user_errors(override: str, reason: str) -> AbstractContextManager[None]:
    """Raise a UserCodeError with the traceback for any error of the user's code; for one of a library's, a sentence."""

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


def _check_arguments(key: str, call: Any, value: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raise for an argument that a call does not take, a text for a number or one that is missing, but in a partial."""
    bound, keywords = partial(call, *value.get(ARGS, ())), {name: value[name] for name in value if name not in SPECIAL}
    try:
        signature = inspect.signature(bound).parameters
        outer = inspect.signature(call, follow_wrapped=False).parameters  # a wrapper may take more than it shows
    except (ValueError, TypeError):  # of some functions in C, or too many arguments
        return
    parameters, title = parameters_of(bound), getattr(call, "__qualname__", repr(call))
    takes_any = any(each.kind is each.VAR_KEYWORD for each in (*signature.values(), *outer.values()))
    for name, argument in keywords.items():
        if name in parameters:
            _check_number(f"{key}.{name}", argument, title, parameters[name].annotation)
        elif not takes_any:
            near = nearest(name, parameters)
            reason = f"{title} takes no such argument" + (f" (did you mean {near}?)" if near else "")
            raise config_error(f"{key}.{name}", argument, reason, f"one of: {', '.join(parameters) or 'none'}")
    for name, parameter in parameters.items():
        is_given = name in keywords or name in defaults or value.get(PARTIAL, False)
        if not is_given and parameter.default is parameter.empty:
            raise ConfigError(f"{key}.{name} is missing: {title} needs it; write {key}.{name}=VALUE.")


def _check_number(key: str, value: object, title: str, annotation: Any) -> None:
    """Raise for a text where an annotation allows numbers, and tensors perhaps, and for 1e3, a float, as an int."""
    words = {*re.findall(r"\w+", str(annotation))} - {"class", "typing", "torch"}
    if words & {"int", "float"} and words <= NUMERIC:
        require(not isinstance(value, str), key, value, f"{title} takes a number", f"{key}=0.1, for example")
        fits = not isinstance(value, float) or bool(words & {"float", "Tensor"})
        require(fits, key, value, f"{title} takes a whole number", f"{key}=1, for example")


def filled(call: Mapping[str, Any], data: Data) -> dict[str, Any]:
    """Return the call of a module, and that of its `net`, with sample_shape, num_classes and num_outputs of the data.

    What is given stays, null too. `num_outputs` is the number of classes if the data tells no other.
    """
    known: dict[str, Any] = {name: getattr(data, name) for name in FROM_DATA}
    known["num_outputs"] = known["num_outputs"] or known["num_classes"]
    known["sample_shape"] = data.sample_shape and [*data.sample_shape]  # as in a YAML file

    def with_facts(key: str, target: Mapping[str, Any]) -> dict[str, Any]:
        parameters = parameters_of(partial(locate(f"{key}.{KEY}", target[KEY]), *target.get(ARGS, ())))
        added = {}
        for name in [each for each in FROM_DATA if each in parameters and each not in target]:
            if known[name] is not None:
                added[name] = known[name]
            elif parameters[name].default is inspect.Parameter.empty:
                of_data = f"self.{name} = … in the LightningDataModule"
                of_data += "" if name == "sample_shape" else ", or data.num_classes=VALUE for Datasets"
                hint = f"+{key}.{name}=VALUE, or {of_data}"
                raise ConfigError(f"{key}.{name} is missing, and the data does not tell it; write {hint}.")
        return {**target, **added}

    filled_call = with_facts("model", call)
    for *path, name in targets_within(call):
        node = filled_call
        for key in path:
            node[key] = node = {**node[key]}
        node[name] = with_facts(".".join(("model", *path, name)), node[name])
    return filled_call


def targets_within(call: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the keys of the targets among a module's arguments that need facts about its data: `net`, and metrics."""
    targets: dict[tuple[str, ...], Any] = {("net",): call.get("net")}
    if isinstance(metrics := call.get("metrics"), Mapping):
        targets |= {("metrics", name): value for name, value in metrics.items()}
    return [path for path, value in targets.items() if isinstance(value, Mapping) and KEY in value]
