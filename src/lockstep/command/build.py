"""Build a plan from a Hydra configuration: types, defaults, and what the module and its data say about themselves."""

import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from lockstep.base.config_error import ConfigError, config_error, is_number, option_error
from lockstep.base.constraints import PositiveInt, Processes
from lockstep.base.files import CONF, absolute
from lockstep.launch import forkserver, start
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.machine import default_threads, gpu_count, resolve_accelerator
from lockstep.plan import schemas
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.coerce import check_keys, coerce_value
from lockstep.plan.schemas.groups import GROUPS, PARTS, SEVERAL, TARGETS, is_below, leaves, parts_of
from lockstep.plan.schemas.run import ENGINES, EVERY_RUN
from lockstep.plan.schemas.target import BATCH_SIZE, KEY, PARTIAL

TYPES: dict[str, Any] = {
    **get_type_hints(Plan, include_extras=True),
    **{"batch_size": PositiveInt | None, "batch_size_per_device": PositiveInt | None, "scale_lr": bool},
    **{"threads": Processes | None, "accelerator": Literal["auto", "cpu", "gpu"]},
}
"""The types of keys as they are typed; a plan has some in another form, or values derived from them."""

NAMES = [each.name for each in fields(Plan) if each.name not in ("command", "config", "options")]
KEYS = ("batch_size_per_device", "scale_lr", *PARTS, *(name for name in NAMES if name != "run_dir"))
"""The keys at the top of a configuration."""

INSPECTED = (
    *("model", "data", "logger", "callbacks", "seed", "batch_size", "drop_last", "trainer"),
    *("strategy", "devices", "accelerator", "train"),
    *("max_epochs", "accumulate_grad_batches", "gradient_clip_val", "precision", "log_every_n_steps"),
)
"""Options of the plan that the inspection depends on. A module may read the last ones from `self.trainer`."""


def plan_from(config: DictConfig, run_dir: Path) -> Plan:
    """Return the plan of a composed configuration. `planning` makes sentences of OmegaConf's errors."""
    values = typed_values(config, run_dir)
    values |= _facts(values)
    values["batch_size"] = values["batch_size"] or BATCH_SIZE
    values["test"] = values["data"].test_size > 0 and values["test"]
    unresolved, resolved = (OmegaConf.to_container(config, resolve=resolves) for resolves in (False, True))
    options: Any = _options_of(unresolved, resolved)  # type: ignore[arg-type]
    values = {name: values[name] for name in NAMES}
    return Plan(**values, config=OmegaConf.to_yaml(config), options=options)


def typed_values(config: DictConfig, run_dir: Path) -> dict[str, Any]:
    """Return the options of a plan before the inspection; `devices=auto` is counted."""
    unresolved: Any = OmegaConf.to_container(config, resolve=False)
    check_keys("", dict.fromkeys(SEVERAL) | unresolved, KEYS)  # these are missing after logger=[] or ~logger
    if config.devices == "auto":
        strategy = GROUPS["strategy"].get(str(OmegaConf.select(config, "strategy.name")))
        has_several = config.accelerator != "cpu" and not getattr(strategy, "one_device", True)
        config.devices = max(1, gpu_count()) if has_several else 1
    values: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    typed = {}
    for key, value in values.items():
        kind = TYPES.get(key)
        if key in GROUPS:
            name = str(value.get("name") if isinstance(value, Mapping) else value)
            if name not in GROUPS[key]:
                raise option_error(f"{key}.name", name, "there is no such option", GROUPS[key])
            kind = GROUPS[key][name]
        if key not in TARGETS:
            typed[key] = coerce_value(kind, key, value)
    values = _with_batch_size_and_rate(config, typed)
    for group in SEVERAL:
        values[group] = tuple(_target(key, option) for key, option in named_options(group, values.get(group)).items())
    values["model"], values["data"] = _module(values["model"], parts_of(unresolved["model"])), _data(values["data"])
    return _with_derived({**values, "run_dir": str(run_dir.absolute())})


def _options_of(unresolved: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a configuration by the keys of the command line.

    What refers to another key (`model.optimizer: ${optimizer}`) is left out, and so is what nothing refers to.
    """
    texts = {key: str(text) for key, text in leaves(unresolved, of_lists=False)}
    left_out = {key for key, text in texts.items() if text.startswith("${") and text[2:-1] in unresolved}
    left_out |= {*PARTS} - {*parts_of(unresolved["model"])}
    return {key: value for key, value in leaves(values, of_lists=False) if not is_below(key, left_out)}


def _with_batch_size_and_rate(config: DictConfig, typed: dict[str, Any]) -> dict[str, Any]:
    """Return the resolved values, targets among them, with the global batch size and the scaled rate."""
    ranks = typed["strategy"].data_parallel_size(typed["devices"]) * typed["num_nodes"]
    config = config.copy()
    with open_dict(config):
        if typed["batch_size_per_device"] is not None:
            typed["batch_size"] = typed["batch_size_per_device"] * ranks
        config.batch_size = typed["batch_size"]  # 1e1 as 10, for what refers to it
        if typed["scale_lr"]:
            rate = OmegaConf.select(config, "optimizer.lr")
            if not is_number(rate):
                hint = "scale_lr=false, or optimizer.lr=0.01"
                raise config_error("scale_lr", True, "the chosen optimizer has no lr", hint)
            config.optimizer.lr = rate * ranks
    resolved: Any = OmegaConf.to_container(config, resolve=True)
    return {**resolved, **typed}


def _target(key: str, values: object) -> Any:
    group = key.partition(".")[0]
    if not isinstance(values, Mapping) or not isinstance(values.get(KEY), str):
        hint = f"{group}=NAME, of a YAML file with a {KEY}"
        raise config_error(key, values, f"it is no target: it has no {KEY}", hint)
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
        if given and part in parts:
            _target(part, given)
        if KEY in given and not given.get(PARTIAL):
            reason = f"is missing: a module calls it with more arguments; write {PARTIAL}: true."
            raise ConfigError(f"{part}.{PARTIAL} {reason}")
    return target


def _data(values: Any) -> schemas.Data:
    """Return the data module, with absolute paths and a batch size."""
    if values is None:
        return schemas.Data("module", "data", {})
    target: schemas.Data = _target("data", values)
    paths = {name: absolute(values[name]) for name in ("root", "file") if name in values}
    size = {"batch_size": values["batch_size"] or BATCH_SIZE} if "batch_size" in values else {}
    return replace(target, call={**values, **paths, **size})


def _with_derived(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with derived ones: threads, accelerator, and those of fast_dev_run."""
    strategy, trainer, devices = values["strategy"], values["trainer"].resolved(), values["devices"]
    if trainer.fast_dev_run:
        values["max_epochs"] = 1
        values["logger"] = ()
    if strategy.in_process is None:
        strategy = replace(strategy, in_process=at_a_terminal())
    if values["threads"] is None:
        values["threads"] = default_threads(strategy.workers(devices))
    accelerator = resolve_accelerator(values["accelerator"], devices, strategy)
    return {**values, "strategy": strategy, "trainer": trainer, "accelerator": accelerator}


def at_a_terminal() -> bool:
    """Whether a debugger's prompt can be answered. Jobs of a sweep have no prompt."""
    sweeps = HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN
    return not sweeps and sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def _facts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts about the module and its data; raise a ConfigError if these do not work.

    They are found in a child of the fork server, so that the command imports no code of the user's.
    """
    options = {name: values[name] for name in INSPECTED}
    if rank_from_env() is not None or values["strategy"].in_process:
        return inspect(options)
    forkserver.start_forkserver(*ENGINES.values(), *EVERY_RUN)
    facts: dict[str, Any] = start.in_child(inspect, options)
    return facts


def inspect(options: dict[str, Any]) -> dict[str, Any]:
    """Call `inspect_options`, whose file needs torch and Lightning."""
    from lockstep.engine.inspection import inspect_options

    return inspect_options(options)
