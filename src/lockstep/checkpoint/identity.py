"""Which plans are the same training: only these may resume from a checkpoint."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from lockstep.config_error import ConfigError, as_typed
from lockstep.plan import Plan
from lockstep.schemas.data import FACTS, Loaders, UserData
from lockstep.schemas.keys import flatten
from lockstep.schemas.trainer import DEFAULTS, PREFIX

MATTERS = (
    *("model", "task", "data", "optimizer", "scheduler", "seed", "batch_size", "accumulate_grad_batches", "drop_last"),
    *("precision", "gradient_clip_val", "sync_batchnorm", "dropout_rng"),
)
"""The rest may change: engine, strategy, devices, threads, memory_format, logger, and the number of epochs."""

MAY_MOVE = ("data.root", "data.loader")
WORLD = ("strategy", "devices", "num_nodes", "accelerator")
"""What matters too where ranks draw random numbers of their own, or take statistics of their own share of a batch."""


def identity(plan: Plan, depends_on_world: bool) -> dict[str, Any]:
    """What of a plan its results depend on, by the keys of the command line: `model`, `model.hidden`, `seed`, …

    Args:
        depends_on_world: as `record.run_metadata` says of the net.
    """
    values = asdict(plan)
    found = flatten({key: values[key] for key in MATTERS}) | plan.trainer.training_options()
    if found["task"] in ("auto", "classification" if plan.data.classes else "regression"):
        del found["task"]  # what the data asks for, and nobody said before there was the key
    if found.get("task.ignore_index") is None:
        found.pop("task.ignore_index", None)
    if plan.model.lightning:  # it has an optimizer and schedules of its own
        found = {key: own for key, own in found.items() if not key.startswith(("optimizer", "schedul"))}
        found["loss_reduction"] = plan.loss_reduction
    if plan.callbacks:
        found["callbacks"] = [own.call for own in plan.callbacks]
    if depends_on_world:
        found |= {key: values[key] for key in WORLD} | {"strategy": plan.strategy.resumes_as}
    known: dict[str, Any] = json.loads(json.dumps({key: own for key, own in found.items() if key not in MAY_MOVE}))
    return known


def require_same(plan: Plan, saved: Mapping[str, Any]) -> None:
    """Refuse a plan that is another training than the checkpoint's, naming the keys.

    Args:
        saved: the identity of the checkpoint's plan. It has the world where its net depended on it, and so would the
            same net now; another model is refused whatever the world.
    """
    usual = {PREFIX + name: value for name, value in DEFAULTS.items()}
    own, saved = usual | identity(plan, not saved.keys().isdisjoint(WORLD)), usual | {**saved}
    differ = [key for key in {**own, **saved} if own.get(key) != saved.get(key)]  # null: as before there was the key
    if not differ:
        return
    groups = {key for key in differ if "." not in key}  # of another model, say, the options say nothing
    keys = [key for key in differ if "." not in key or key.split(".")[0] not in groups]
    keys = [key for key in keys if key in own and key in saved] or keys
    if isinstance(plan.data, UserData | Loaders):
        keys = [key for key in keys if key.removeprefix("data.") not in FACTS] or keys
    if groups & {*WORLD}:
        reason = "its dropout or BatchNorm was each rank's own, so it resumes only in the world it began in"
    else:
        reason = "what is trained would not be the same"
    here = " ".join(_option(key, own) for key in keys)
    there = " ".join(_option(key, saved) for key in keys)
    raise ConfigError(f"{here}: the run of ckpt_path={plan.ckpt_path} had {there}, and {reason}; write {there}.")


def _option(key: str, values: Mapping[str, Any]) -> str:
    return f"{key}={as_typed(values[key])}" if key in values else f"no {key}"
