"""Leave out of a module's checkpoint what cannot be loaded safely: see `safe_loading`."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from lockstep.progress import notice
from lockstep.safe_loading import is_loadable

SAFE_KEYS = ("epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers", "loops", "lockstep")
"""Entries that consist of tensors and plain values."""


def loadable(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint without what would run code when it is loaded; print a line about that once."""
    safe = {}
    for key, value in checkpoint.items():
        if key in SAFE_KEYS or is_loadable(value):
            safe[key] = value
        elif isinstance(value, Mapping) and (lost := [name for name, item in value.items() if not is_loadable(item)]):
            safe[key] = {name: item for name, item in value.items() if name not in lost}
            _report(key, ", ".join(map(str, lost)))
        else:
            _report(key, type(value).__name__)
    return safe


@cache
def _report(key: str, lost: str) -> None:
    arguments = ", ".join(f"{name}=…" for name in lost.split(", "))
    hint = f"; lockstep.load(RUN) creates them again, or write load_from_checkpoint(PATH, {arguments})"
    advice = hint if key == "hyper_parameters" else ""
    notice(f"checkpoints hold no {lost} of {key}: only tensors and values of known types can be loaded safely{advice}")
