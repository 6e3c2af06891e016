"""Check a plan: each violated rule is a ConfigError with the key and what to write instead."""

import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import schemas
from lockstep.config_error import config_error, require
from lockstep.constraints import Rules

if TYPE_CHECKING:
    from lockstep.plan import Plan


def check(plan: "Plan") -> None:
    """Check that a plan can be run.

    Raises:
        ConfigError: it cannot; the message names the key to change.
    """
    require_run_name(plan.name)
    plan.strategy.check(plan)
    parts = (plan.model, plan.task, plan.scheduler, *plan.logger, *plan.callbacks, plan.checkpoint, plan.trainer)
    for is_valid, key, reason, hint in chain(_batch_rules(plan), *(part.rules(plan) for part in parts), _rules(plan)):
        if not is_valid:
            raise config_error(key, _value_at(plan, key), reason, hint)


def _value_at(plan: "Plan", key: str) -> Any:
    """Return the value of a key of the command line; of a group the name of its option."""
    value: Any = plan
    for name in key.split("."):
        value = getattr(value, name.strip("_"), None)
    if isinstance(value, tuple):
        names = [option.name for option in value]
        return names[0] if len(names) == 1 else names
    return getattr(value, "name", value)


def require_run_name(name: object) -> None:
    """Raise a ConfigError for the name of a run whose folder would not be below logs/."""
    path = Path(str(name))
    is_below = name != "" and not path.is_absolute() and ".." not in path.parts
    require(is_below, "name", name, "the run's folder is logs/<name>/…", "name=train")
    is_short = all(len(os.fsencode(part)) <= 255 for part in path.parts) and len(os.fsencode(path)) <= 1024
    require(is_short, "name", name, "a folder's name has at most 255 bytes, a path 1024", "name=train")


def _batch_rules(plan: "Plan") -> Rules:
    """Yield the rules of the global batch. Ranks may have unequal shares, or none, of a user's loaders."""
    data, batch_size = plan.data, plan.batch_size
    if isinstance(data, schemas.Loaders) and not data.regular:
        return
    if (total := getattr(data, "total", None)) is not None:
        names = [name for name in ("samples", "val_size", "test_size") if getattr(data, name, None) is not None]
        sizes = " and ".join(f"data.{name}={getattr(data, name)}" for name in names)
        used = data.train_samples + data.val_size + getattr(data, "test_size", 0)
        reason = f"{sizes} exceed its {total} samples, or leave none to train on"
        yield data.train_samples > 0 and used <= total, "data", reason, "smaller sizes"
    world, samples = plan.world_size * plan.strategy.layout(plan.devices).virtual_ranks, data.train_samples
    if not isinstance(data, schemas.Loaders):
        reason = f"batch_size={batch_size} is less than a sample for each of {world} ranks"
        nodes = f" with num_nodes={plan.num_nodes}" if plan.num_nodes > 1 else ""
        devices = batch_size // plan.num_nodes or 1
        yield batch_size >= world, "devices", reason, f"devices={devices} or fewer{nodes}, or batch_size={world}"
        below = batch_size - batch_size % world
        reason = f"{world} ranks (devices={plan.devices}) cannot share it equally"
        yield below == batch_size, "batch_size", reason, f"batch_size={below} or batch_size={below + world}"
    reason = f"batch_size={batch_size} is more than the {samples} samples, so every batch would be dropped"
    hint = f"drop_last=false, or batch_size={world * (samples // world) or world}"
    yield not plan.drop_last or batch_size <= samples, "drop_last", reason, hint


def _rules(plan: "Plan") -> Rules:
    """Yield the rules of keys that exclude each other."""
    fits = plan.precision != "16-mixed" or plan.accelerator != "cpu"
    yield fits, "precision", "it needs a GPU", "precision=bf16-mixed, or accelerator=gpu"
    hint = "resume=false, or engine=raw hydra.run.dir=…/raw for one of them"
    fits = not plan.resume or plan.engine.name != "both"
    yield fits, "resume", "engine=both is two runs, each in a folder of its own", hint
    if not plan.train:
        yield plan.test, "test", "with train=false nothing is left to do", "train=true or test=true"
        yield not plan.resume, "resume", "with train=false there is no training to resume", "resume=false"
        hint = "ckpt_path=logs/…/checkpoints/best.ckpt, or train=true"
        yield plan.ckpt_path is not None, "ckpt_path", "with train=false there is no trained net to test", hint
        reason, hint = "it is printed before training", "model_summary=false, or train=true"
        yield not plan.model_summary, "model_summary", reason, hint
