"""Writing a checkpoint: whole or not at all, without what would run code when it is loaded."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from lockstep.base.files import atomic_write, sync_folder
from lockstep.base.safe_loading import is_loadable, plain
from lockstep.base.streams import notice
from lockstep.runs.checkpoint.content import SECTION
from lockstep.runs.checkpoint.files import BEST, PREVIOUS, hardlink, read_checkpoint
from lockstep.runs.checkpoint.shards import SHARDS, remove_unused, with_tensors
from lockstep.runs.record.fingerprint import digest

# entries of a checkpoint that consist of tensors and plain values
SAFE_KEYS = ("epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers", "loops", SECTION, SHARDS)


def save(checkpoint: Mapping[str, Any], path: Path) -> None:
    """Write a checkpoint atomically, or raise an OSError; keep the old one as previous.ckpt, the best as best.ckpt."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        with temporary.open("wb") as file:
            torch.save(loadable(checkpoint), file)
        if path.exists():
            hardlink(path, PREVIOUS)
        if checkpoint.get(SECTION, {}).get("best_yet"):
            hardlink(temporary, BEST)
    sync_folder(path.parent)
    remove_unused(path.parent)


def loadable(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint without what would run code when it is loaded; print a line about that once."""
    safe = {}
    for key, original in checkpoint.items():
        value = original if key == "state_dict" else plain(original)  # arguments of targets, such as `betas`
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
    reason = "only tensors and values of known types can be loaded safely"
    hint = "; lockstep.load(RUN) creates them again" if key == "hyper_parameters" else ""
    notice(f"checkpoints hold no {lost} of {key}: {reason}{hint}")


def replace_weights(path: Path, weights: Mapping[str, Any]) -> None:
    """Save the weights that the end of fit has left, if they are others, beside those to go on training with."""
    checkpoint = read_checkpoint(path, mmap=True)
    is_sharded = SHARDS in checkpoint
    saved = (with_tensors(checkpoint, path.parent, ["state_dict"]) if is_sharded else checkpoint)["state_dict"]
    weights = {name: weights.get(name, value) for name, value in saved.items()}  # a module may leave some out
    if digest(weights) != digest(saved):
        checkpoint = with_tensors(checkpoint, path.parent) if is_sharded else checkpoint
        content = {**checkpoint[SECTION], "state_dict": saved, "best_yet": False}
        save({**checkpoint, "state_dict": weights, SECTION: content}, path)
