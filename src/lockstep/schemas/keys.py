"""Options by the keys of the command line: `model`, `model.hidden`, `seed`, …"""

from collections.abc import Iterable, Mapping
from typing import Any


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """By the keys of the command line: `{"model": {"name": "mlp"}}` → `{"model": "mlp"}`, other keys `model.hidden`."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            own = {**value, **value.get("arguments", {})}
            own.pop("arguments", None)
            found |= {key if name == "name" else f"{key}.{name}": option for name, option in own.items()}
        else:
            found[key] = value
    return found


def is_below(key: str, groups: Iterable[str]) -> bool:
    """Whether it is one of these keys, or an option of one."""
    return any(key == group or key.startswith(f"{group}.") for group in groups)


def short_keys(options: Mapping[str, Any]) -> dict[str, Any]:
    """By the last part of each key, where no other key ends in it."""
    leaves = [key.rpartition(".")[2] for key in options]
    return {
        leaf if leaves.count(leaf) == 1 else key: value
        for leaf, (key, value) in zip(leaves, options.items(), strict=True)
    }
