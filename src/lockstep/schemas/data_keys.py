"""Check the keys between underlines of a user's data, before a run."""

from collections.abc import Mapping
from typing import Any

from lockstep.config_error import is_number, not_negative, option_error, require
from lockstep.schemas.coerce import coerce_value

PLANNED = {
    "dataset": "nothing: _target_ says it",
    "batch_size": "batch_size=…, of all devices together",
    "shuffle": "nothing: training data is shuffled by the seed, the rest is not",
    "drop_last": "drop_last=true",
    "sampler": "nothing: the plan says which rank takes which sample",
    "batch_sampler": "nothing: the plan says which rank takes which sample",
    "generator": "seed=…",
    "worker_init_fn": "nothing: each sample is made under a seed of its own",
}
"""Arguments of a DataLoader that would break the order of samples, and what to write for each."""


LOADER: dict[str, type] = {
    **{"num_workers": int, "prefetch_factor": int, "timeout": float},
    **{"pin_memory": bool, "persistent_workers": bool, "in_order": bool},
}
"""Arguments of a DataLoader that are plain values."""

CONTEXTS = ("fork", "forkserver", "spawn")


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the keys, as a plan has them.

    Raises:
        ConfigError: one of them has another form.
    """
    split, loader = (_group(f"data.{name}", given[name]) for name in ("_split_", "_loader_"))
    for name, size in split.items():
        fits = name in ("val", "test") and is_number(size) and size >= 0 and (isinstance(size, int) or 0 < size < 1)
        require(fits, f"data._split_.{name}", size, "it takes val and test, samples or shares", "data._split_.val=0.1")
    count = given["_classes_"]
    count = int(count) if isinstance(count, str) and count.isdigit() else count
    fits = count is None or (isinstance(count, int) and not isinstance(count, bool) and count >= 2)
    require(fits, "data._classes_", count, "it is the number of classes", "data._classes_=10, say")
    for name in ("_inputs_", "_targets_"):
        fits = given[name] is None or (isinstance(given[name], str) and given[name] != "")
        require(fits, f"data.{name}", given[name], "it is one key of each sample", f"data.{name}=image, say")
    fits, reason = (
        given["_targets_"] is None or given["_inputs_"] is not None,
        "where the target has a key the input has",
    )
    require(fits, "data._targets_", given["_targets_"], f"{reason} one too", "data._inputs_=KEY beside it")
    return {**given, "_split_": split, "_loader_": _loader_options(loader), "_classes_": count}


def _group(key: str, values: Any) -> dict[str, Any]:
    fits = values is None or isinstance(values, Mapping)
    require(fits, key, values, "it is a group of keys", f"{key}={{KEY:VALUE}}")
    return {**(values or {})}


def _loader_options(options: dict[str, Any]) -> dict[str, Any]:
    """As a DataLoader takes them. One that it does not have is found where torch is: its nearest name is told."""
    for name, value in options.items():
        key = f"data._loader_.{name}"
        require(name not in PLANNED, key, value, "the plan has it", PLANNED.get(name, ""))
        if name in LOADER and (name, value) != ("prefetch_factor", None):
            options[name] = coerce_value(LOADER[name], key, value)
            not_negative(key, options[name])
    own, context = options.get("collate_fn"), options.get("multiprocessing_context")
    path = f"{{_target_: {own if isinstance(own, str) else 'PATH'}, _partial_: true}}"
    fits = own is None or isinstance(own, Mapping) or callable(own)
    require(fits, "data._loader_.collate_fn", own, "it is a function, which a target names", path)
    if context is not None and context not in CONTEXTS:
        raise option_error("data._loader_.multiprocessing_context", context, "there is no such way", CONTEXTS)
    return options
