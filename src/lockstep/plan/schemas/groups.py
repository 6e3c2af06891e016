"""The config groups, and options by the keys of the command line: `strategy`, `model.net.hidden`, `seed`, …"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args, get_type_hints

from lockstep.plan import schemas
from lockstep.plan.schemas.target import KEY, Target
from lockstep.strategies import STRATEGIES

GROUPS: dict[str, Mapping[str, Any]] = {
    "engine": {name: kind for kind in get_args(schemas.Engine) for name in get_args(get_type_hints(kind)["name"])},
    "strategy": STRATEGIES,
}
"""The type of each option of the groups with typed options."""

TARGETS: dict[str, type[Target]] = {
    "model": schemas.Module,
    "data": schemas.Data,
    "optimizer": Target,
    "scheduler": Target,
    "logger": schemas.Logger,
    "callbacks": schemas.Callback,
}
"""The groups whose options are targets, of Lockstep and of users alike."""

PARTS = ("optimizer", "scheduler")
"""The groups that a model refers to, as `${optimizer}`: they are options of no other use."""


def parts_of(model: object) -> tuple[str, ...]:
    """Return those that the composed, unresolved options of a model refer to."""
    return tuple(part for part in PARTS if f"${{{part}}}" in str(model))


SEVERAL = ("logger", "callbacks")
"""The groups that take several options: `logger=[csv,tensorboard]`; the keys of an option are `logger.csv.KEY`."""


WORLD = ("engine", "strategy", "devices", "num_nodes", "accelerator", "threads", "memory_format")
"""The groups and keys of where a run is computed, which change no number beyond rounding."""

MONITORING = (
    *("name", "logger", "record", "checkpoint", "process_group", "optimized_metric", "resume", "ckpt_path"),
    *("show_shapes", "model_summary", "profiler", "detect_nan", "log_every_n_steps"),
)
"""Those of where a run lies and how it is watched, which change no number."""


def leaves(value: Any, prefix: str = "", of_lists: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested mappings, and of lists, by dotted keys.

    Those of the command line: a target, or a choice by `name`, has the key of its group.
    """
    if isinstance(value, Mapping) and value:
        choice = KEY if KEY in value else "name"
        for key, inner in value.items():
            yield from leaves(inner, prefix if prefix and key == choice else f"{prefix}.{key}".lstrip("."), of_lists)
    elif of_lists and isinstance(value, list | tuple) and value:
        yield from leaves(dict(enumerate(value)), prefix)
    else:
        yield prefix, value


def better(metric: str) -> Literal["min", "max"]:
    """Return whether smaller or larger values of a metric are better, by its name."""
    larger = r"(acc|accuracy|f1|r2|auc|auroc|precision|recall|samples_per_second)$"
    return "max" if re.search(larger, metric.lower()) else "min"


def key_of(override: str) -> str:
    """Return the key of an override, which may begin with `+`, `++` or `~`."""
    return override.lstrip("+~").partition("=")[0]


def is_below(key: str, groups: Iterable[str]) -> bool:
    """Whether `key` is one of the groups, or an option of one."""
    return any(key == group or key.startswith(f"{group}.") for group in groups)


def short_keys(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options by the last part of each key if that is unique; a target keeps its group."""
    names = [key if key.endswith(KEY) else key.rpartition(".")[2] for key in options]
    return {
        name if names.count(name) == 1 else key: value
        for name, (key, value) in zip(names, options.items(), strict=True)
    }
