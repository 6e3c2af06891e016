"""Which plans are the same training: only these may resume from a checkpoint."""

import json
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from lockstep.config_error import ConfigError, as_typed, shorten
from lockstep.plan import Plan
from lockstep.run_files import run_of
from lockstep.schemas.groups import is_below
from lockstep.schemas.target import KEY
from lockstep.schemas.trainer import DEFAULTS

GROUPS = ("model", "data", "optimizer", "scheduler")
TRAINING = (
    *("seed", "batch_size", "accumulate_grad_batches", "drop_last", "precision", "gradient_clip_val"),
    *("sync_batchnorm", "loss_reduction"),
)
"""What may not change; engine, strategy, devices, threads, memory_format, logger and the number of epochs may."""

MAY_MOVE = ("data.root", "data.loader", "data.num_workers", "data.pin_memory", "data.persistent_workers")
FACTS = {
    **{"data.train_samples": "train_samples", "data.val_samples": "val_size", "data.test_samples": "test_size"},
    **{"data.train_batches": "train_batches", "data.regular": "regular"},
}
"""Facts about the data, which the inspection tells, and what to call them."""
FORMER = "data.sums"  # a key that runs of an earlier version have, which measured the sums of a task
WORLD = ("strategy", "devices", "num_nodes", "accelerator")
"""What may not change either if ranks draw their own random numbers, or take statistics of their share of a batch."""


def identity(plan: Plan, depends_on_world: bool) -> dict[str, Any]:
    """Return the options that a plan's results depend on, by the keys of the command line: `model.net.hidden`, …"""
    options = {key: value for key, value in plan.options.items() if is_below(key, GROUPS)}
    options |= {key: getattr(plan, key) for key in TRAINING}
    options |= {key: attrgetter(key)(plan) for key in DEFAULTS if attrgetter(key)(plan) != DEFAULTS[key]}
    options |= {name: getattr(plan.data, fact) for name, fact in FACTS.items()}
    if plan.callbacks:
        options["callbacks"] = [callback.call for callback in plan.callbacks]
    if depends_on_world:
        options |= {key: getattr(plan, key) for key in WORLD} | {"strategy": plan.strategy.resumes_as}
    kept = {key: value for key, value in options.items() if not is_below(key, MAY_MOVE)}
    plain: dict[str, Any] = json.loads(json.dumps(kept))
    return plain


def require_same(plan: Plan, saved: Mapping[str, Any]) -> None:
    """Raise if a plan is another training than that of a checkpoint with this identity; name the keys that differ."""
    current = DEFAULTS | identity(plan, not saved.keys().isdisjoint(WORLD))  # the same net depends on it as much
    saved = DEFAULTS | {**saved}
    current, saved = _unnested(current, saved), _unnested(saved, current)
    differing = [key for key in {**current, **saved} if current.get(key) != saved.get(key)]  # null: a newer key
    if not differing:
        return
    groups = {key for key in differing if "." not in key}  # the options of another model, say, are not listed
    keys = [key for key in differing if "." not in key or key.split(".")[0] not in groups]
    keys = [key for key in keys if key in current and key in saved] or keys
    typed = [key for key in keys if key not in FACTS]
    keys = typed or keys
    reason = "what is trained would not be the same"
    if groups & {*WORLD}:
        reason = "its dropout or BatchNorm was each rank's own, so it resumes only in the world it began in"
    here, there = (" ".join(_option(key, options) for key in keys) for options in (current, saved))
    is_code = any(
        key.endswith(KEY) or f"{key}._target_" in saved or KEY in str(saved.get(key)) for key in keys
    )  # it cannot be typed
    hint = f"resume=true hydra.run.dir={run_of(Path(str(plan.ckpt_path)))}" if is_code else there
    if not typed:
        hint = "ckpt_path=null, or restore the data"
    here, there = shorten(here), shorten(there)
    raise ConfigError(f"{here}: the run of ckpt_path={plan.ckpt_path} had {there}, and {reason}; write {hint}.")


def _unnested(options: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, with the entries of a mapping by `key.entry` where the others have a mapping too."""
    entries: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Mapping) and isinstance(others.get(key), Mapping):
            entries |= {f"{key}.{name}": entry for name, entry in _unnested(value, others[key]).items()}
        else:
            entries[key] = value
    return entries


def _option(key: str, options: Mapping[str, Any]) -> str:
    return f"{key}={as_typed(options[key])}" if key in options else f"no {key}"
