"""Options by the keys of the command line: `model`, `model.hidden`, `seed`, …"""

from collections.abc import Iterable, Mapping
from typing import Any


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options by key: `{"model": {"name": "mlp"}}` becomes `{"model": "mlp"}`, other keys `model.hidden`."""
    options: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            group = {**value, **value.get("arguments", {})}
            group.pop("arguments", None)
            options |= {key if name == "name" else f"{key}.{name}": option for name, option in group.items()}
        else:
            options[key] = value
    return options


def is_below(key: str, groups: Iterable[str]) -> bool:
    """Whether `key` is one of the groups, or an option of one."""
    return any(key == group or key.startswith(f"{group}.") for group in groups)


def short_keys(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options by the last part of each key if that is unique."""
    names = [key.rpartition(".")[2] for key in options]
    return {
        name if names.count(name) == 1 else key: value
        for name, (key, value) in zip(names, options.items(), strict=True)
    }
