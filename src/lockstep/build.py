"""Build a plan from a Hydra configuration: types, defaults, and what the module and its data say about themselves."""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, cast, get_type_hints

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from lockstep import schemas
from lockstep.conf import CONF
from lockstep.config_error import config_error, is_number, option_error, require
from lockstep.constraints import PositiveInt
from lockstep.files import absolute
from lockstep.inspection import inspected
from lockstep.launch.accelerator import require_backend, resolve_accelerator
from lockstep.plan import Plan
from lockstep.schemas import Checkpoint, ProcessGroup, Record, Trainer
from lockstep.schemas.coerce import check_keys, coerce, coerce_value
from lockstep.schemas.data import BATCH_SIZE, OF_MODULE
from lockstep.schemas.former import check_settings, data_error
from lockstep.schemas.groups import GROUPS, PARTS, SEVERAL, TARGETS
from lockstep.schemas.keys import is_below
from lockstep.schemas.target import KEY

BEFORE: dict[str, Any] = {
    **{"devices": PositiveInt, "num_nodes": PositiveInt, "threads": PositiveInt | None, "scale_lr": bool},
    **{"batch_size": PositiveInt | None, "batch_size_per_device": PositiveInt | None},
    "accelerator": Literal["auto", "cpu", "gpu"],
}
"""The types of keys from which values of the plan are derived."""

NESTED = {"process_group": ProcessGroup, "checkpoint": Checkpoint, "record": Record, "trainer": Trainer}
"""Groups of keys without options."""

FOLDERS = ("root", "file")
"""Arguments of data modules that name files, from the folder of the command."""

KEYS = (
    "batch_size_per_device",
    "scale_lr",
    *PARTS,
    *(each.name for each in fields(Plan) if each.name not in ("run_dir", *Plan.inferred)),
)
"""The keys at the top of a configuration."""


def plan_from(config: DictConfig, run_dir: Path) -> Plan:
    """Return the plan of a composed configuration.

    Raises:
        ConfigError: a key or a value is invalid.
        OmegaConfBaseException: an interpolation or a missing value, which `job.planning` makes a sentence of.
    """
    typed_values = cast(dict[str, Any], OmegaConf.to_container(config, resolve=False))
    check_keys("", dict.fromkeys(SEVERAL) | typed_values, KEYS)  # these are missing after logger=[] or ~logger
    text, options = OmegaConf.to_yaml(config), options_of(config)
    config, typed = _with_derived(config)
    values = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True, throw_on_missing=True)) | typed
    for group in SEVERAL:
        values[group] = _targets(group, values.get(group))
    values["model"], values["data"] = _module(values["model"]), _data(values["data"])
    for key, kind in NESTED.items():
        values[key] = coerce(kind, key, values[key])
    require_backend(values["process_group"])
    values = {key: value for key, value in values.items() if key not in (*PARTS, "scale_lr", "batch_size_per_device")}
    values = _typed(_resolved({**values, "run_dir": str(run_dir.absolute())}))
    plan = coerce(Plan, "", inspected(values))
    return replace(plan, config=text, options=options)


def options_of(config: DictConfig) -> dict[str, Any]:
    """Return the values of a configuration by the keys of the command line; `engine` and `strategy` are their names.

    What refers to another key (`model.optimizer: ${optimizer}`) is left out, and so is what nothing refers to.
    """
    raw = cast(dict[str, Any], OmegaConf.to_container(config, resolve=False))
    unused = [part for part in PARTS if f"${{{part}}}" not in str(raw["model"])]
    options = dict(_flat(config, raw, raw, ""))
    return {key: value for key, value in options.items() if not is_below(key, unused)}


def _flat(
    config: DictConfig, raw: Mapping[str, Any], root: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, Any]]:
    """Yield the keys and resolved values of a configuration. `raw`: the same with its interpolations."""
    for name, text in raw.items():
        is_reference = isinstance(text, str) and text.startswith("${") and text[2:-1] in root
        if is_reference or text == "???":
            continue
        key, value = f"{prefix}{name}", config[name]
        if isinstance(text, Mapping) and text:
            yield from _flat(value, text, root, f"{key}.")
        else:
            plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
            yield (prefix[:-1] if prefix and name == "name" else key), plain


def _with_derived(config: DictConfig) -> tuple[DictConfig, dict[str, Any]]:
    """Return the configuration with the global batch size and the scaled rate in it; and the keys typed until then."""
    top = {
        key: OmegaConf.to_container(node, resolve=True, throw_on_missing=True) if OmegaConf.is_config(node) else node
        for key in ("engine", "strategy", *BEFORE)
        for node in [config[key]]
    }
    typed: dict[str, Any] = {group: _option(group, top[group]) for group in GROUPS}
    typed |= {key: coerce_value(kind, key, top[key]) for key, kind in BEFORE.items()}
    ranks = typed["strategy"].data_parallel_size(typed["devices"]) * typed["num_nodes"]
    config = config.copy()
    with open_dict(config):
        if typed["batch_size_per_device"] is not None:
            typed["batch_size"] = typed["batch_size_per_device"] * ranks
        config.batch_size = typed["batch_size"]  # 1e1 as 10, for what refers to it
        if typed["scale_lr"]:
            rate = OmegaConf.select(config, "optimizer.lr")
            reason = "the chosen optimizer has no lr"
            require(is_number(rate), "scale_lr", True, reason, "scale_lr=false, or optimizer.lr=0.01")
            config.optimizer.lr = rate * ranks
    return config, typed


def _option(group: str, values: object) -> Any:
    """Return the typed option of a group."""
    options = GROUPS[group]
    if not isinstance(values, Mapping):
        raise config_error(group, values, "it is a group of keys", f"{group}={next(iter(options))}")
    name = values.get("name")
    if not isinstance(name, str) or name not in options:
        raise option_error(f"{group}.name", name, "there is no such option", options)
    return coerce(options[name], group, values)


def _targets(group: str, values: object) -> list[object]:
    """Return the chosen options of a group that takes several."""
    kind = TARGETS[group]
    for key, option in (named := named_options(group, values)).items():
        _require_target(key, option)
    return [kind.from_values(key, cast(Mapping[str, Any], option)) for key, option in named.items()]


def _require_target(key: str, values: object) -> None:
    if not isinstance(values, Mapping) or not isinstance(values.get(KEY), str):
        given = {**values} if isinstance(values, Mapping) else values
        hint = f"{key.partition('.')[0]}=NAME, of a YAML file with a {KEY}"
        raise config_error(key, given, f"it is no target: it has no {KEY}", hint)


def named_options(group: str, values: object) -> dict[str, object]:
    """Return the chosen options of a group that takes several, by key: `logger.csv`; those that are null are left out.

    A file has its `_target_` at the top, so that its key is the group's, or below a name.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        return {group: values} if values != [] else {}
    if KEY in values:
        options = {name for name in values if (CONF / group / f"{name}.yaml").is_file()}
        rest = {name: value for name, value in values.items() if name not in options}
        return {group: rest} | {f"{group}.{name}": values[name] for name in options}
    return {f"{group}.{name}": option for name, option in values.items() if option is not None}


def _module(values: object) -> schemas.Module:
    _require_target("model", values)
    assert isinstance(values, Mapping)
    for part in PARTS:
        if isinstance(given := values.get(part), Mapping):
            check_settings(part, given)
    return schemas.Module.from_values("model", values)


def _data(values: object) -> schemas.Data:
    """Return the data module, with absolute paths and a batch size."""
    if values is None:
        return OF_MODULE
    if isinstance(values, Mapping) and KEY not in values and {"dataset", "train"} & values.keys():
        raise data_error(values)
    _require_target("data", values)
    assert isinstance(values, Mapping)
    paths = {name: absolute(values[name]) for name in FOLDERS if isinstance(values.get(name), str)}
    size = {"batch_size": values["batch_size"] or BATCH_SIZE} if "batch_size" in values else {}
    return schemas.Data.from_values("data", {**values, **paths, **size})


def _resolved(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with derived ones: threads, accelerator, and those of fast_dev_run."""
    strategy, trainer, devices = values["strategy"], values["trainer"].resolved(), values["devices"]
    per_node = strategy.data_parallel_size(devices)
    if trainer.fast_dev_run:
        values["max_epochs"] = 1
    if trainer.fast_dev_run or trainer.barebones:
        values["logger"] = []
    if strategy.in_process is None:
        strategy = replace(strategy, in_process=at_a_terminal())
    if values["threads"] is None:
        values["threads"] = max(1, usable_cores() // per_node)
    accelerator = resolve_accelerator(values["accelerator"], devices, strategy)
    on_cores = per_node if accelerator == "cpu" or strategy.share_device else 1
    for key, count in (("devices", on_cores), ("threads", values["threads"])):
        limit, reason = max(64, 8 * usable_cores()), f"this machine has {usable_cores()} cores"
        require(count <= limit, key, count, reason, f"{key}={limit}, or fewer")
    return {**values, "strategy": strategy, "trainer": trainer, "accelerator": accelerator}


def _typed(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values, but lists, with the types of the plan, which the inspection expects; it finds a batch size."""
    kinds = {**get_type_hints(Plan, include_extras=True), "batch_size": PositiveInt | None}
    return {
        key: value if isinstance(value, list) else coerce_value(kinds[key], key, value) for key, value in values.items()
    }


def at_a_terminal() -> bool:
    """Whether a debugger's prompt can be answered. Jobs of a sweep have no prompt."""
    sweeps = HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN
    return not sweeps and sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
