"""The label by which people tell runs apart in TensorBoard: `lr=0.003 ddp×2 mlp · 11-22_14-03-12`, a folder's name."""

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.base.config_error import shorten
from lockstep.plan.schemas.groups import MONITORING, is_below, short_keys

if TYPE_CHECKING:
    from lockstep.plan.plan import Plan

HyperParameter = str | int | float

FOLDER = "tensorboard"

UNNAMED = (*MONITORING, "train", "test", "callbacks", "data.root")
"""Groups and keys that do not say what is trained."""
NAMED = ("engine", "strategy", "devices", "num_nodes", "model")
"""Keys whose values every label has."""

LONGEST = 90  # characters of a label without its time; a value has a third of them


def folder_of(plan: "Plan") -> Path:
    """Return the folder of a plan's events; a resumed run continues in its folder."""
    folder = Path(plan.run_dir) / FOLDER
    existing = [path.parent for path in folder.glob("*/events.out.tfevents.*")] if plan.resume else []
    return max(existing, key=lambda path: path.stat().st_mtime, default=folder / run_label(plan))


def plain_hparam(value: Any) -> HyperParameter:
    """Return a number or a text; null is a text too, since TensorBoard would show no difference from it."""
    return value if isinstance(value, str | int | float) else shorten(json.dumps(value, default=str), 100)


def run_label(plan: "Plan") -> str:
    """Return what the sweep varies, or what was typed; engine, strategy, devices and net; and the folder's date."""
    command = plan.command
    values = {}
    for word in command.words:
        key, equals, value = word.lstrip("+").partition("=")
        distinguishes = key in command.swept if command.swept else not is_below(key, (*UNNAMED, "hydra"))
        if equals and distinguishes and key not in NAMED and not key.startswith("-"):
            last = value.strip("'\"").rstrip("/").rpartition("/")[2]  # of a path
            values[key] = shorten(" ".join(last.split()), LONGEST // 3)
    chosen = [f"{key}={value}" for key, value in short_keys(values).items()]
    devices = plan.devices * plan.num_nodes
    engine = "" if plan.engine.name == "lightning" else plan.engine.name
    world = plan.strategy.name if devices == 1 else f"{plan.strategy.name}×{devices}"
    words = " ".join(filter(None, [*chosen, engine, world, plan.model.name]))
    dated = re.findall(r"\d{4}-(\d\d-\d\d_\d\d-\d\d-\d\d)", "/".join(Path(plan.run_dir).parts[-3:]))
    return f"{shorten(words, LONGEST)} · {dated[-1] if dated else time.strftime('%m-%d_%H-%M-%S')}"
