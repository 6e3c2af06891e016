"""Build a plan from a Hydra configuration: types, defaults, and what user code says about itself."""

import os
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, cast

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from lockstep.config_error import config_error, option_error, require
from lockstep.constraints import PositiveInt
from lockstep.files import absolute
from lockstep.inspection import inspected
from lockstep.launch.accelerator import require_backend, require_compiler, resolve_accelerator
from lockstep.plan import Plan
from lockstep.progress import notice
from lockstep.schemas import Checkpoint, ProcessGroup, Record, Trainer
from lockstep.schemas.coerce import check_keys, coerce, coerce_value, unknown_key
from lockstep.schemas.groups import GROUPS, SEVERAL, USER_CODE
from lockstep.schemas.target import ARGS, KEY

BEFORE: dict[str, Any] = {
    **{"devices": PositiveInt, "num_nodes": PositiveInt, "threads": PositiveInt | None, "scale_lr": bool},
    **{"batch_size": PositiveInt | None, "batch_size_per_device": PositiveInt | None},
    "accelerator": Literal["auto", "cpu", "gpu"],
}
"""The types of keys from which values of the plan are derived."""

NESTED = {"process_group": ProcessGroup, "checkpoint": Checkpoint, "record": Record, "trainer": Trainer}
"""Groups of keys without options."""


KEYS = (
    "batch_size_per_device",
    "scale_lr",
    *(each.name for each in fields(Plan) if each.name not in ("run_dir", "command")),
)
"""The keys at the top of a configuration."""


def plan_from(config: DictConfig, run_dir: Path) -> Plan:
    """Return the plan of a composed configuration.

    Raises:
        ConfigError: a key or a value is invalid.
        OmegaConfBaseException: an interpolation or a missing value, which `job.planning` makes a sentence of.
    """
    values = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True, throw_on_missing=True))
    for group in SEVERAL:
        values.setdefault(group, {"name": "none"})  # after logger=[] or ~logger
    check_keys("", values, KEYS)
    if values["loss_reduction"] == "as_is":
        notice("loss_reduction=as_is: write loss_reduction=none; the old name goes with the next version")
        values["loss_reduction"] = "none"
    for group in GROUPS:
        values[group] = _options(group, values[group]) if group in SEVERAL else _option(group, group, values[group])
    for key, kind in NESTED.items():
        values[key] = coerce(kind, key, values[key])
    require_backend(values["process_group"])
    return coerce(Plan, "", inspected(_resolved({**values, "run_dir": str(run_dir.absolute())})))


def _options(group: str, values: object) -> list[object]:
    """Return the chosen options of a group that takes several, without `none`."""
    options = [_option(group, key, option) for key, option in named_options(group, values).items()]
    return [option for option in options if option.name != "none"]


def named_options(group: str, values: object) -> dict[str, object]:
    """Return the chosen options of a group that takes several, by key: `logger.csv`.

    A user's file has its `_target_` at the top, so that its key is the group's, or below a name.
    """
    if not isinstance(values, Mapping):
        return {group: values}
    named = {
        name: option
        for name, option in values.items()
        if isinstance(option, Mapping) and (KEY not in values or (name in GROUPS[group] and option.get("name") == name))
    }
    rest = {name: value for name, value in values.items() if name not in named}
    if named and rest and not {"name", KEY} & rest.keys():
        raise unknown_key(f"{group}.{next(iter(rest))}", next(iter(rest.values())), [])
    return ({group: rest} if rest or not named else {}) | {f"{group}.{name}": value for name, value in named.items()}


def _option(group: str, key: str, values: object) -> Any:
    """Return the typed option of a group, whose keys begin with `key`."""
    options, user_code = GROUPS[group], USER_CODE.get(group)
    if not isinstance(values, Mapping):
        raise config_error(key, values, "it is a group of keys", f"{group}={next(iter(options))}")
    values = with_name(group, values)
    if user_code is not None and not values.keys().isdisjoint(user_code.marks):
        values = {name: value for name, value in values.items() if name != "name" or value not in options}
        return user_code.from_values(key, values)
    name = values.get("name")
    if not isinstance(name, str) or name not in options:
        raise option_error(f"{key}.name", name, "there is no such option", options)
    if "root" in values:
        values = {**values, "root": absolute(values["root"])}
    return coerce(options[name], key, values)


def with_name(group: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace the import path of a built-in option by the option's name."""
    names = {getattr(option, "path", None): name for name, option in GROUPS[group].items()}
    path = values.get(KEY) if ARGS not in values else None
    if not isinstance(path, str) or path not in names:
        return values
    return {"name": names[path]} | {name: value for name, value in values.items() if name not in (KEY, "name")}


def _resolved(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with derived ones: global batch size, learning rate, threads, accelerator."""
    values |= {key: coerce_value(kind, key, values[key]) for key, kind in BEFORE.items()}
    strategy, trainer, devices = values["strategy"], values["trainer"].resolved(), values["devices"]
    per_node = strategy.layout(devices).data_parallel_size
    if (per_device := values.pop("batch_size_per_device")) is not None:
        values["batch_size"] = per_device * per_node * values["num_nodes"]
    if values.pop("scale_lr"):
        values["optimizer"] = values["optimizer"].with_lr(values["optimizer"].lr * per_node * values["num_nodes"])
    if trainer.fast_dev_run:
        values["max_epochs"] = 1
    if trainer.fast_dev_run or trainer.barebones:
        values["logger"] = []
    if strategy.in_process is None:
        strategy = replace(strategy, in_process=at_a_terminal())
    if values["threads"] is None:
        values["threads"] = max(1, usable_cores() // per_node)
    accelerator = resolve_accelerator(values["accelerator"], devices, strategy)
    require_compiler(values["compile"], accelerator)
    on_cores = per_node if accelerator == "cpu" or strategy.share_device else 1
    for key, count in (("devices", on_cores), ("threads", values["threads"])):
        limit, reason = max(64, 8 * usable_cores()), f"this machine has {usable_cores()} cores"
        require(count <= limit, key, count, reason, f"{key}={limit}, or fewer")
    return {**values, "strategy": strategy, "trainer": trainer, "accelerator": accelerator}


def at_a_terminal() -> bool:
    """Whether a debugger's prompt can be answered. Jobs of a sweep have no prompt."""
    sweeps = HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN
    return not sweeps and sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
