"""From a Hydra config to a Plan: every value is typed, every default resolved, what is unknown refused by name."""

import os
import sys
import typing
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lockstep.conf import CONF
from lockstep.config_error import ConfigError, as_typed, config_error, option_error, require
from lockstep.files import absolute
from lockstep.inspection import inspected
from lockstep.launch.accelerator import require_backend, resolve_accelerator
from lockstep.plan import Plan
from lockstep.schemas import Checkpoint, ProcessGroup, Record, Target, Trainer
from lockstep.schemas.coerce import check_keys, coerce, coerce_value, unknown_key
from lockstep.schemas.groups import GROUPS, OWN_CODE, SEVERAL
from lockstep.schemas.target import ARGS, KEY, require_spelling

DERIVED = ("batch_size_per_device", "scale_lr")
"""Keys that a plan does not hold, because they have been worked into others."""

SOURCES: dict[str, Any] = {
    **{"devices": int, "num_nodes": int, "threads": int | None, "accelerator": Literal["auto", "cpu", "gpu"]},
    **{"batch_size": int | None, "batch_size_per_device": int | None, "scale_lr": bool},
}
"""What others are derived from, and the types that it has before."""

NESTED = {"process_group": ProcessGroup, "checkpoint": Checkpoint, "record": Record, "trainer": Trainer}
"""Keys of keys, of which there is one kind only."""


def plan_from(config: DictConfig, run_dir: Path) -> Plan:
    """The plan of a composed configuration.

    Raises:
        ConfigError: a key or a value that cannot be.
    """
    try:
        values = typing.cast(dict[str, Any], OmegaConf.to_container(config, resolve=True, throw_on_missing=True))
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {str(error).splitlines()[0]}; write a value for it.") from None
    check_keys(
        "", values, [*DERIVED, *(field.name for field in fields(Plan) if field.name not in ("run_dir", "command"))]
    )
    for group in GROUPS:
        values[group] = _choices(group, values[group]) if group in SEVERAL else _choice(group, group, values[group])
    for key, options in NESTED.items():
        is_group = isinstance(values[key], Mapping)
        first = f"{key}.{fields(options)[0].name}"
        hint = f"{key}.KEY=VALUE" if values[key] is None else f"{first}={as_typed(values[key])}"
        require(is_group, key, values[key], "it is a group of keys", hint)
        values[key] = coerce(options, f"{key}.", values[key])
    require_backend(values["process_group"])
    optimizer, scales = values["optimizer"], values["scale_lr"]
    plan = coerce(Plan, "", inspected(_resolved({**values, "run_dir": str(run_dir.absolute())})))
    if plan.model.lightning:
        _require_no_other_optimizer(plan.model.name, optimizer, scales)
    return plan


def _require_no_other_optimizer(module: str, chosen: Any, scales: object) -> None:
    """Refuse what somebody has typed of an optimizer: a LightningModule configures its own."""
    defaults: Any = OmegaConf.load(CONF / "train.yaml")
    name = next(own["optimizer"] for own in defaults["defaults"] if "optimizer" in own)
    values = OmegaConf.to_container(OmegaConf.load(CONF / "optimizer" / f"{name}.yaml"))
    usual = _choice("optimizer", "optimizer", values)
    reason, hint = f"{module} configures its optimizer itself", "an argument of the module, model.lr=0.01, say"
    require(scales is not True, "scale_lr", True, reason, hint)
    require(chosen.name == usual.name, "optimizer", chosen.name, reason, hint)
    for field in fields(usual):
        own = getattr(chosen, field.name)
        require(own == getattr(usual, field.name), f"optimizer.{field.name}", own, reason, hint)


def _choices(group: str, values: object) -> list[object]:
    """The typed options of each that is chosen of a group that takes several; `none` is none of them."""
    chosen = [_choice(group, key, own) for key, own in named_options(group, values).items()]
    others = [own.name for own in chosen if own.name != "none"]
    fits = not others or len(others) == len(chosen)
    require(fits, group, ["none", *others], "none goes with no other", f"{group}={[*others, 'none'][0]}")
    return chosen if others else []


def named_options(group: str, values: object) -> dict[str, object]:
    """The options that are chosen of such a group, each by its key on the command line: `logger.csv`.

    A file of the user's own has its `_target_` at the top (its key is the group's), or below a name of its own.
    """
    if not isinstance(values, Mapping):
        return {group: values}
    named = {
        name: own
        for name, own in values.items()
        if isinstance(own, Mapping) and (KEY not in values or (name in GROUPS[group] and own.get("name") == name))
    }
    rest = {name: own for name, own in values.items() if name not in named}
    if named and rest and not {"name", KEY} & rest.keys():
        raise unknown_key(f"{group}.{next(iter(rest))}", next(iter(rest.values())), [])
    return ({group: rest} if rest or not named else {}) | {f"{group}.{name}": own for name, own in named.items()}


def _choice(group: str, key: str, values: object) -> Any:
    """The typed options of a group, whose keys begin with `key`; which type, their `name` says."""
    options = GROUPS[group]
    values = with_name(group, values)
    if group in OWN_CODE:
        require_spelling(key, values, [field.name for field in fields(OWN_CODE[group]) if field.name[0] == "_"])
    if isinstance(values, Mapping) and OWN_CODE.get(group, Target).named_in(values):
        reason, hint = f"{group} takes no code of your own", f"{group}={next(iter(options))}"
        require(group in OWN_CODE, f"{key}.{KEY}", values.get(KEY), reason, hint)
        given = {name: own for name, own in values.items() if name != "name" or own not in options}  # the default's
        own = OWN_CODE[group].of(given) | ({"key": key} if group in SEVERAL else {})
        return OWN_CODE[group](**own)
    if not isinstance(values, Mapping) or "name" not in values:
        raise config_error(key, values, "it is a group of keys", f"{group}={next(iter(options))}")
    values, name = dict(values), values["name"]
    if not isinstance(name, str) or name not in options:
        raise option_error(f"{key}.name", name, "there is no such option", options)
    own_keys = {option: {field.name for field in fields(kind)} for option, kind in options.items()}
    for other in values.keys() - own_keys[name]:  # someone wrote GROUP.name=…, or a plus sign
        if owners := [f"{group}={option}" for option, names in own_keys.items() if other in names]:
            reason = f"{group}={name} has no such key"
            raise config_error(f"{group}.{other}", values[other], reason, f"{' or '.join(owners)} with it")
    if "root" in values:
        values["root"] = absolute(values["root"])
    return coerce(options[name], f"{key}.", values)


def with_name(group: str, values: object) -> object:
    """A built-in option that is named by its import path, with the name that it has here in the path's place."""
    paths = {getattr(option, "path", None): name for name, option in GROUPS.get(group, {}).items()}
    own = values.get(KEY) if isinstance(values, Mapping) and ARGS not in values else None
    if not isinstance(values, Mapping) or not isinstance(own, str) or own not in paths:
        return values
    return {"name": paths[own], **{name: value for name, value in values.items() if name not in (KEY, "name")}}


def _resolved(values: dict[str, Any]) -> dict[str, Any]:
    """Replace what is derived by what it comes to: global batch, learning rate, threads, accelerator."""
    values |= {key: coerce_value(kind, key, values[key]) for key, kind in SOURCES.items()}
    # what is below 1 the plan refuses by name; nothing that is derived from it may be refused first
    devices, nodes = (max(1, values[key]) for key in ("devices", "num_nodes"))
    data_parallel_size = values["strategy"].layout(devices).data_parallel_size  # on each machine
    if (per_device := values.pop("batch_size_per_device")) is not None:
        key = "batch_size_per_device"
        require(per_device >= 1, key, per_device, "it must be 1 or more", f"{key}=32, say")
        values["batch_size"] = per_device * data_parallel_size * nodes
    if values.pop("scale_lr"):
        optimizer = values["optimizer"]
        values["optimizer"] = optimizer.with_lr(optimizer.lr * data_parallel_size * nodes)
    if values["trainer"].fast_dev_run:
        values |= {"max_epochs": 1, "logger": []}
    if values["trainer"].barebones:
        values["logger"] = []
    values["trainer"] = values["trainer"].resolved()
    if values["strategy"].in_process is None:
        values["strategy"] = replace(values["strategy"], in_process=at_a_terminal())
    if values["threads"] is None:
        values["threads"] = max(1, usable_cores() // data_parallel_size)
    values["accelerator"] = resolve_accelerator(values["accelerator"], devices, values["strategy"])
    if values["accelerator"] == "cpu" or values["strategy"].share_device:
        _require_bearable("devices", data_parallel_size)
    _require_bearable("threads", values["threads"])
    return values


def _require_bearable(key: str, value: int) -> None:
    """Refuse what would not train but bring the machine down: a slip of the finger is a million processes."""
    cores = usable_cores()
    most, reason = max(64, 8 * cores), f"this machine has {cores} core{'s' if cores > 1 else ''} to compute on"
    require(value <= most, key, value, reason, f"{key}={most}, or fewer")


def at_a_terminal() -> bool:
    """Whether a debugger's prompt can be answered: not in a sweep, whose jobs would all ask."""
    sweeps = HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN
    return not sweeps and sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
