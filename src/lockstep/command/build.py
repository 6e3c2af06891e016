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

from lockstep.base.config_error import ConfigError, config_error, is_number, option_error, require
from lockstep.base.constraints import PositiveInt
from lockstep.base.files import CONF, absolute
from lockstep.launch import forkserver
from lockstep.launch.accelerator import require_backend, resolve_accelerator
from lockstep.launch.external_launcher import rank_from_env
from lockstep.plan import schemas
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.coerce import check_keys, coerce, coerce_value
from lockstep.plan.schemas.former import SETTINGS, data_error
from lockstep.plan.schemas.groups import GROUPS, PARTS, SEVERAL, TARGETS, is_below, parts_of
from lockstep.plan.schemas.run import ENGINES, EVERY_RUN
from lockstep.plan.schemas.target import BATCH_SIZE, KEY, PARTIAL
from lockstep.plan.targets.locate import require_package

BEFORE: dict[str, Any] = {
    **{"devices": PositiveInt, "num_nodes": PositiveInt, "threads": PositiveInt | None, "scale_lr": bool},
    **{"batch_size": PositiveInt | None, "batch_size_per_device": PositiveInt | None},
    "accelerator": Literal["auto", "cpu", "gpu"],
}
"""The types of keys from which values of the plan are derived."""

NAMES = [each.name for each in fields(Plan) if each.name not in Plan.inferred]
KEYS = ("batch_size_per_device", "scale_lr", *PARTS, *(name for name in NAMES if name != "run_dir"))
"""The keys at the top of a configuration."""

INSPECTED = (
    *("model", "data", "logger", "callbacks", "seed", "batch_size", "drop_last", "trainer"),
    *("max_epochs", "accumulate_grad_batches", "gradient_clip_val", "precision", "log_every_n_steps"),
)
"""Options of the plan that the inspection depends on. A module may read the last ones from `self.trainer`."""


def plan_from(config: DictConfig, run_dir: Path) -> Plan:
    """Return the plan of a composed configuration.

    Raises:
        ConfigError: a key or a value is invalid.
        OmegaConfBaseException: an interpolation or a missing value, which `job.planning` makes a sentence of.
    """
    unresolved = cast(dict[str, Any], OmegaConf.to_container(config, resolve=False))
    check_keys("", dict.fromkeys(SEVERAL) | unresolved, KEYS)  # these are missing after logger=[] or ~logger
    values = _resolved(config)
    text, options = OmegaConf.to_yaml(config), _options_of(unresolved, values)
    values = _with_batch_size_and_rate(config, values)
    for group in SEVERAL:
        values[group] = [_target(key, option) for key, option in named_options(group, values.get(group)).items()]
    parts = parts_of(unresolved["model"])
    values["model"], values["data"] = _module(values["model"], parts), _data(values["data"])
    hints = get_type_hints(Plan, include_extras=True)
    for key in ("process_group", "checkpoint", "record", "trainer"):
        values[key] = coerce(hints[key], key, values[key])
    require_backend(values["process_group"])
    kinds = {**hints, "batch_size": PositiveInt | None}  # the inspection finds one
    values = _with_derived({**values, "run_dir": str(run_dir.absolute())})
    values = _inspected({name: coerce_value(kinds[name], name, values[name]) for name in NAMES})
    return Plan(**values, config=text, options=options)


def _resolved(config: DictConfig) -> dict[str, Any]:
    return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True, throw_on_missing=True))


def _options_of(unresolved: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a configuration by the keys of the command line; `engine` and `strategy` are their names.

    What refers to another key (`model.optimizer: ${optimizer}`) is left out, and so is what nothing refers to.
    """

    def flat(prefix: str, texts: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, text in texts.items():
            if isinstance(text, Mapping) and text:
                yield from flat(f"{prefix}{name}.", text, values[name])
            elif not (isinstance(text, str) and text.startswith("${") and text[2:-1] in unresolved):
                yield (prefix[:-1] if prefix and name == "name" else f"{prefix}{name}"), values[name]

    unused = {*PARTS} - {*parts_of(unresolved["model"])}
    return {key: value for key, value in flat("", unresolved, values) if not is_below(key, unused)}


def _with_batch_size_and_rate(config: DictConfig, values: dict[str, Any]) -> dict[str, Any]:
    """Return the resolved values with the global batch size and the scaled rate, and with some of them typed."""
    typed: dict[str, Any] = {group: _option(group, values[group]) for group in GROUPS}
    typed |= {key: coerce_value(kind, key, values[key]) for key, kind in BEFORE.items()}
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
    return _resolved(config) | typed


def _option(group: str, values: Any) -> Any:
    """Return the typed option of a group."""
    options, name = GROUPS[group], values.get("name") if isinstance(values, Mapping) else values
    if str(name) not in options:
        raise option_error(f"{group}.name", name, "there is no such option", options)
    return coerce(options[str(name)], group, values)


def _target(key: str, values: object) -> Any:
    group = key.partition(".")[0]
    if not isinstance(values, Mapping) or not isinstance(values.get(KEY), str):
        given = {**values} if isinstance(values, Mapping) else values
        hint = f"{group}=NAME, of a YAML file with a {KEY}"
        raise config_error(key, given, f"it is no target: it has no {KEY}", hint)
    return TARGETS[group].from_values(key, values)


def named_options(group: str, values: object) -> dict[str, object]:
    """Return the chosen options of a group that takes several, by key: `logger.csv`; those that are null are left out.

    A file has its `_target_` at the top, so that its key is the group's, or below a name.
    """
    if not isinstance(values, Mapping):
        return {group: values} if values else {}
    if KEY in values:
        options = {name for name in values if (CONF / group / f"{name}.yaml").is_file()}
        rest = {name: value for name, value in values.items() if name not in options}
        return {group: rest} | {f"{group}.{name}": values[name] for name in options}
    return {f"{group}.{name}": option for name, option in values.items() if option is not None}


def _module(values: Any, parts: tuple[str, ...]) -> schemas.Module:
    target: schemas.Module = replace(_target("model", values), parts=parts)
    for part in PARTS:
        given = values[part] if isinstance(values.get(part), Mapping) else {}
        for name in given.keys() & SETTINGS.keys():
            raise ConfigError(f"{part}.{name}: there is no such key any more; write {SETTINGS[name]}.")
        if KEY in given and not given.get(PARTIAL):
            reason = "is missing: a module calls it with more arguments"
            raise ConfigError(f"{part}.{PARTIAL} {reason}; write {PARTIAL}: true.")
    return target


def _data(values: Any) -> schemas.Data:
    """Return the data module, with absolute paths and a batch size."""
    if values is None:
        return schemas.Data("module", "data", {})
    if isinstance(values, Mapping) and KEY not in values and {"dataset", "train"} & values.keys():
        raise data_error(values, "Dataset")
    target: schemas.Data = _target("data", values)
    paths = {name: absolute(values[name]) for name in ("root", "file") if name in values}
    size = {"batch_size": values["batch_size"] or BATCH_SIZE} if "batch_size" in values else {}
    return replace(target, call={**values, **paths, **size})


def _with_derived(values: dict[str, Any]) -> dict[str, Any]:
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


def at_a_terminal() -> bool:
    """Whether a debugger's prompt can be answered. Jobs of a sweep have no prompt."""
    sweeps = HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN
    return not sweeps and sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _inspected(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a plan, with facts about its module and data; raise a ConfigError if these do not work.

    The inspection runs in a child of the fork server, so that the command imports no code of the user's.
    """
    data = [values["data"]] if values["data"].is_module else []
    for target in (values["model"], *data, *values["logger"], *values["callbacks"]):
        require_package(f"{target.key}.{KEY}", target.path)
    for logger in values["logger"]:
        logger.check()
    options, engine = {name: values[name] for name in INSPECTED}, values["engine"].name
    is_started = rank_from_env() is not None or values["strategy"].in_process
    if not is_started:
        engines = [ENGINES[name] for name in ENGINES if engine in (name, "both")]
        forkserver.start_forkserver(*engines, *EVERY_RUN)
    from lockstep.plan.targets.early_checks import check_early  # with torch, while the server imports Lightning

    check_early(values["model"])
    if is_started:
        values |= inspect(options)
    else:
        from lockstep.launch.child import in_child

        values |= in_child(inspect, options)
    has_test_data = values["data"].test_size > 0
    return {**values, "batch_size": values["batch_size"] or BATCH_SIZE, "test": has_test_data and values["test"]}


def inspect(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a plan, with facts about its module and data."""
    from lockstep.engine.inspection import inspect_options  # with torch

    return inspect_options(options)
