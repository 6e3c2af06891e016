"""YAML files as earlier versions had them: each is refused with the YAML to write."""

from collections.abc import Mapping
from typing import Any

from lockstep.config_error import ConfigError, as_typed
from lockstep.schemas.target import KEY, PARTIAL

REFERENCES = {part: f"${{{part}}}" for part in ("optimizer", "scheduler")}
NOT_OF_A_NET = ("net", "optimizer", "scheduler", "sample_shape", "num_classes", "num_outputs")
"""Keys that an option of another model has left, or that are filled in."""
SETTINGS = {
    "_decay_bias_and_norm_": f"{KEY}: lockstep.optimizers.adamw_groups, {PARTIAL}: true",
    "_interval_": "scheduler_interval: step in the YAML of the model",
    "_monitor_": "monitor: METRIC in the YAML of the model",
}
"""Keys of Lockstep within an optimizer or a schedule, and what to write in their place."""


def net_error(call: Mapping[str, Any]) -> ConfigError:
    """Return the error of a model that is a plain net."""
    net = {name: value for name, value in call.items() if name not in NOT_OF_A_NET}
    model = {KEY: "lockstep.models.Classifier", "net": net, **REFERENCES}
    renamed = "; its arguments shape and outputs are sample_shape and num_outputs now"
    return _error("model", call[KEY], f"it is a net, and a LightningModule trains it{renamed}", model)


def data_error(values: Mapping[str, Any], what: str = "Dataset") -> ConfigError:
    """Return the error of data that is a Dataset, or three, with what an earlier version had beside it."""
    names = {"inputs": "input_key", "targets": "target_key", "classes": "num_classes"}
    split = values.get("split") or {}
    sizes = {f"{name}_size": size for name, size in split.items()} if isinstance(split, Mapping) else {}
    kept = {names.get(name, name): value for name, value in values.items() if name != "split"}
    kept = {"dataset": {**values}} if KEY in values else kept
    module = {KEY: "lockstep.datamodules.Datasets", "batch_size": "${batch_size}", **kept, **sizes}
    return _error("data", values.get(KEY), f"it is a {what}, and a LightningDataModule loads it", module)


def check_settings(key: str, values: Mapping[str, Any]) -> None:
    """Raise for a setting of an earlier version, or if an optimizer or a schedule is not partial."""
    for name in values.keys() & SETTINGS.keys():
        raise ConfigError(f"{key}.{name}: there is no such key any more; write {SETTINGS[name]}.")
    if KEY in values and not values.get(PARTIAL):
        raise ConfigError(f"{key}.{PARTIAL} is missing: a module calls it with more arguments; write {PARTIAL}: true.")


def _error(key: str, path: object, reason: str, yaml: Mapping[str, Any]) -> ConfigError:
    named = key if path is None else f"{key}.{KEY}={path}"
    return ConfigError(f"{named}: {reason}; write {as_typed(yaml)[1:-1].replace(':', ': ').replace(',', ', ')}.")
