"""The label by which people tell runs apart in TensorBoard: `lr=0.003 ddp×2 mlp · 14-03-12`, a folder's name."""

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.base.config_error import truncate
from lockstep.plan.schemas.groups import is_below, key_of, short_keys

if TYPE_CHECKING:
    from lockstep.plan.plan import Plan

HyperParameter = str | int | float

FOLDER = "tensorboard"

MONITORING = (
    *("name", "logger", "record", "checkpoint", "process_group", "optimized_metric", "resume", "ckpt_path"),
    *("show_shapes", "model_summary", "profiler", "detect_nan", "log_every_n_steps", "train", "test", "callbacks"),
    "data.root",
)
"""Groups and keys that say where a run lies and how it is watched, not what is trained."""
MACHINE = ("hydra", "tags", "threads", "accelerator", "trainer.enable_progress_bar", "model._target_", "data._target_")
"""Others that are in a label only if a sweep varies them."""

LONGEST = 90  # characters of a label without its time; a value has a third of them


def folder_of(plan: "Plan") -> Path:
    """Return the folder of a plan's events; a resumed run continues in its folder."""
    folder = Path(plan.run_dir) / FOLDER
    existing = [path.parent for path in folder.glob("*/events.out.tfevents.*")] if plan.resume else []
    return max(existing, key=lambda path: path.stat().st_mtime, default=folder / run_label(plan))


def plain_hparam(value: Any) -> HyperParameter:
    """Return a number or a text; null is a text too, since TensorBoard would show no difference from it."""
    return value if isinstance(value, str | int | float) else truncate(json.dumps(value, default=str), 100)


def run_label(plan: "Plan") -> str:
    """Return engine, strategy, devices, net and overrides, what the sweep varies or was typed first; and a time.

    The time is that of the run's folder.
    """
    devices, chosen = plan.devices * plan.num_nodes, _chosen(plan)
    typed = {key_of(word) for word in plan.command.words}
    varied = {*plan.command.swept} or typed
    engine = plan.engine.name if plan.engine.name != "lightning" or "engine" in typed else ""
    world = plan.strategy.name if devices == 1 else f"{plan.strategy.name}×{devices}"
    groups = ({"engine"}, engine), ({"strategy", "devices", "num_nodes"}, world), ({"model"}, plan.model.name)
    first = [text for keys, text in groups if keys & varied]
    words = " ".join(filter(None, [*first, *chosen, *(text for keys, text in groups if not keys & varied)]))
    dated = re.findall(r"\d{4}-\d\d-\d\d_(\d\d-\d\d-\d\d)", "/".join(Path(plan.run_dir).parts[-3:]))
    return f"{truncate(words, LONGEST)} · {dated[-1] if dated else time.strftime('%H-%M-%S')}"


def _chosen(plan: "Plan") -> list[str]:
    """Return the overrides that distinguish the run, `lr=0.003`, by the last part of the key if that is unique."""
    values, swept = {}, plan.command.swept
    for word in plan.command.words:
        key, _, value = word.lstrip("+").partition("=")
        distinguishes = key in swept if swept else not is_below(key, (*MONITORING, *MACHINE))
        is_named = key in ("engine", "strategy", "devices", "num_nodes", "model")  # every label has them
        if not key.startswith(("~", "--")) and not is_named and distinguishes:
            # without quotes and control characters; the last part of a path
            plain = re.sub(r"[\x00-\x1f]", " ", value.strip("'\"")).rstrip("/").rpartition("/")[2]
            values[key] = truncate(plain, LONGEST // 3)
    return [f"{key}={value}" for key, value in short_keys(values).items()]
