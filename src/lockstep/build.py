"""From a Hydra config to a Plan: every value is typed, every default resolved, what is unknown refused by name."""

import os
import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lockstep.choices import GROUPS
from lockstep.launch.accelerator import resolve_accelerator
from lockstep.plan import Plan
from lockstep.refusal import Refusal, refuse, require

ENGINES = {"lightning": "lockstep.lit"}
"""The module of each engine, by name: only the workers import it."""

T = TypeVar("T")


def plan_from(config: DictConfig, run_dir: Path) -> Plan:
    """The plan of a composed configuration.

    Raises:
        Refusal: a key or a value that cannot be.
    """
    try:
        values = typing.cast(dict[str, Any], OmegaConf.to_container(config, resolve=True, throw_on_missing=True))
    except OmegaConfBaseException as error:
        raise Refusal(f"{error.full_key}: {str(error).splitlines()[0]}; write a value for it.") from None
    for group in GROUPS:
        values[group] = _choice(group, values[group])
    values |= {"run_dir": str(run_dir.absolute()), "ckpt_path": _absolute(values["ckpt_path"])}
    return typed(Plan, "", _resolved(values))


def _choice(group: str, values: object) -> object:
    """The typed options of a group; which type, its `name` says."""
    options = GROUPS[group]
    if not isinstance(values, Mapping) or "name" not in values:
        raise refuse(group, values, "it is a group of keys", f"{group}={next(iter(options))}")
    values = dict(values)
    if values["name"] not in options:
        raise refuse(f"{group}.name", values["name"], "there is no such option", f"one of {', '.join(options)}")
    if "root" in values:
        values["root"] = _absolute(values["root"])
    return typed(options[values["name"]], f"{group}.", values)


def _resolved(values: dict[str, Any]) -> dict[str, Any]:
    """Replace what is derived by what it comes to: global batch, learning rate, threads, accelerator."""
    devices, nodes = (_value(int, key, values[key]) for key in ("devices", "num_nodes"))
    for key, count in (("devices", devices), ("num_nodes", nodes)):
        require(count >= 1, key, count, "it must be 1 or more", f"{key}=1")
    world = devices * nodes
    per_device = _value(int | None, "batch_size_per_device", values.pop("batch_size_per_device"))
    if per_device is not None:
        least, instead = per_device >= 1, "batch_size_per_device=32, say"
        require(least, "batch_size_per_device", per_device, "it must be 1 or more", instead)
        values["batch_size"] = per_device * world
    if _value(bool, "scale_lr", values.pop("scale_lr")):
        optimizer = values["optimizer"]
        values["optimizer"] = type(optimizer)(**{**vars(optimizer), "lr": optimizer.lr * world})
    if values["threads"] is None:
        values["threads"] = max(1, usable_cores() // devices)
    wanted = _value(Literal["auto", "cpu", "gpu"], "accelerator", values["accelerator"])
    values["accelerator"] = resolve_accelerator(wanted, devices)
    return values


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def typed(cls: type[T], prefix: str, values: Mapping[str, Any]) -> T:
    """An instance of the dataclass `cls`: each value of its field's type, none missing, none unknown."""
    hints = get_type_hints(cls)
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    for key in values:
        if key not in names:
            raise unknown_key(prefix + key, [prefix + name for name in names])
    for name in names:
        if name not in values:
            raise Refusal(f"{prefix}{name} is missing; write {prefix}{name}=VALUE.")
    return cls(**{name: _value(hints[name], prefix + name, values[name]) for name in names})


def unknown_key(key: str, known: list[str]) -> Refusal:
    """The refusal of a key that does not exist, with the nearest that does."""
    near = get_close_matches(key, known, n=1)
    instead = f"did you mean {near[0]}?" if near else "python train.py --help lists the keys."
    return Refusal(f"{key}: there is no such key; {instead}")


def _value(kind: Any, key: str, value: Any) -> Any:
    """`value` as a `kind`; whole floats pass as ints, as 1e6 is one in YAML."""
    options = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        if value is None and type(None) in options:
            return None
        kind = next(option for option in options if option is not type(None))
        if len(options) > 2 or not isinstance(kind, type) or kind not in (int, float, str):
            return value  # a union of choices, typed before
        return _value(kind, key, value)
    if get_origin(kind) is Literal:
        near = get_close_matches(str(value), options, n=1, cutoff=0.5)
        instead = f"{key}={near[0]} (it takes {', '.join(options)})" if near else f"one of {', '.join(options)}"
        require(value in options, key, value, "it is none of the possible values", instead)
        return value
    if get_origin(kind) is tuple:
        listed = isinstance(value, list)
        require(listed, key, value, "it is a list", f"{key}=[128,64], say")
        return tuple(_value(options[0], key, item) for item in value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    words = {
        int: ("a whole number", "1"),
        float: ("a number", "0.1"),
        bool: ("true or false", "true"),
        str: ("text", "a"),
    }
    if kind in words and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        wanted, example = words[kind]
        raise refuse(key, value, f"it takes {wanted}", f"{key}={example}, say")
    return value


def _absolute(path: object) -> object:
    return str(Path(path).expanduser().absolute()) if isinstance(path, str) else path
