"""Options by the keys of the command line: `model`, `model.hidden`, `seed`, …"""

from collections.abc import Iterable, Mapping
from typing import Any


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options by key: `{"model": {"name": "mlp"}}` becomes `{"model": "mlp"}`, other keys `model.hidden`."""
    options: dict[str, Any] = {}
    for key, value in config.items():
        if not isinstance(value, Mapping):
            options[key] = value
            continue
        group = {name: option for name, option in value.items() if name not in ("arguments", "key")}
        options |= {key if name == "name" else f"{key}.{name}": option for name, option in group.items()}
        target = value.get("key", key)
        for name, argument in value.get("arguments", {}).items():
            clashes = f"{target}.{name}" in options
            options[f"{target}.arguments.{name}" if clashes else f"{target}.{name}"] = argument
    return options


def key_of(override: str) -> str:
    """Return the key of an override, which may begin with `+`, `++` or `~`."""
    return override.lstrip("+~").partition("=")[0]


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
