"""Which plans are the same training: only these may resume from a checkpoint."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lockstep.config_error import ConfigError, as_typed, shorten
from lockstep.plan import Plan
from lockstep.run_files import run_of
from lockstep.schemas.keys import is_below
from lockstep.schemas.target import KEY
from lockstep.schemas.trainer import DEFAULTS, PREFIX

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
    options |= {key: getattr(plan, key) for key in TRAINING} | plan.trainer.training_options()
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
    defaults = {PREFIX + name: value for name, value in DEFAULTS.items()}
    current = identity(plan, not saved.keys().isdisjoint(WORLD))  # the same net depends on it as much
    current, saved = (dict(_leaves(defaults | {**options})) for options in (current, saved))
    differing = [key for key in {**current, **saved} if current.get(key) != saved.get(key)]  # null: a newer key
    if not differing:
        return
    keys = [key for key in differing if key in current and key in saved] or differing  # the others follow from them
    typed = [key for key in keys if key not in FACTS]
    keys = typed or keys
    reason = "what is trained would not be the same"
    if not {*keys}.isdisjoint(WORLD):
        reason = "its dropout or BatchNorm was each rank's own, so it resumes only in the world it began in"
    here, there = (
        " ".join(f"{key}={as_typed(options[key])}" if key in options else f"no {key}" for key in keys)
        for options in (current, saved)
    )
    hint = there if typed else "ckpt_path=null, or restore the data"
    if any(key.endswith(KEY) or KEY in str(saved.get(key)) for key in keys):  # code: it cannot be typed
        hint = f"resume=true hydra.run.dir={run_of(Path(str(plan.ckpt_path)))}"
    here, there = shorten(here), shorten(there)
    raise ConfigError(f"{here}: the run of ckpt_path={plan.ckpt_path} had {there}, and {reason}; write {hint}.")


def _leaves(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in options.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
