"""What of a module's checkpoint can be loaded again: see `safe_loading`."""

import io
from collections.abc import Mapping
from typing import Any

import torch

from lockstep.progress import notice
from lockstep.safe_loading import load

OURS = ("epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers", "loops", "lockstep")
TOLD: set[str] = set()
"""Of which keys the user has been told."""


def loadable(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint without what would run code when it is loaded; print a line about that once."""
    kept = {}
    for key, value in checkpoint.items():
        if key in OURS or _plain(value):
            kept[key] = value
        elif isinstance(value, Mapping) and (lost := [name for name, own in value.items() if not _plain(own)]):
            kept[key] = {name: own for name, own in value.items() if name not in lost}
            _tell(key, ", ".join(map(str, lost)))
        else:
            _tell(key, type(value).__name__)
    return kept


def _tell(key: str, what: str) -> None:
    if key not in TOLD:
        TOLD.add(key)
        notice(f"checkpoints hold no {what} of {key}: only tensors and values of known types can be loaded safely")


def _plain(value: Any) -> bool:
    if value is None or isinstance(value, str | int | float | bool | torch.Tensor):
        return True
    packed = io.BytesIO()
    try:
        torch.save(value, packed)
        load(io.BytesIO(packed.getvalue()))
    except Exception:
        return False
    return True
