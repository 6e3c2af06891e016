"""The label by which people tell runs apart: `ddp×2 mlp lr=0.003 · 14-03-12`."""

import re
import time
from pathlib import Path

from lockstep.config_error import truncate
from lockstep.plan import Plan
from lockstep.schemas.keys import is_below, short_keys

MONITORING = (
    *("name", "logger", "record", "checkpoint", "process_group", "optimized_metric", "resume", "ckpt_path"),
    *("show_shapes", "model_summary", "detect_nan", "log_every_n_steps", "train", "test", "callbacks", "data.root"),
)
"""Groups and keys that say where a run lies and how it is watched, not what is trained."""
MACHINE = ("hydra", "tags", "threads", "accelerator", "trainer.enable_progress_bar", "model._target_", "data._target_")
"""Others that are in a label only if a sweep varies them."""

LONGEST = 90
"""Characters of a label without its time; a value has a third of them."""


def run_label(plan: Plan) -> str:
    """Return strategy, devices, net, what the command or its sweep has chosen beside them, and the folder's time."""
    devices = plan.devices * plan.num_nodes
    typed = any(word.startswith("engine=") for word in plan.command.words)
    engine = plan.engine.name if plan.engine.name != "lightning" or typed else ""
    world = plan.strategy.name if devices == 1 else f"{plan.strategy.name}×{devices}"
    words = " ".join(filter(None, [engine, world, plan.model.name, *_chosen(plan)]))
    dated = re.findall(r"\d{4}-\d\d-\d\d_(\d\d-\d\d-\d\d)", "/".join(Path(plan.run_dir).parts[-3:]))
    return f"{truncate(words, LONGEST)} · {dated[-1] if dated else time.strftime('%H-%M-%S')}"


def _chosen(plan: Plan) -> list[str]:
    """Return the overrides that distinguish the run, `lr=0.003`, by the last part of the key if that is unique."""
    values, swept = {}, plan.command.swept
    for word in plan.command.words:
        key, _, value = word.lstrip("+").partition("=")
        distinguishes = key in swept if swept else not is_below(key, (*MONITORING, *MACHINE))
        is_first = key in ("engine", "strategy", "devices", "num_nodes", "model")  # every label begins with them
        if not key.startswith(("~", "--")) and not is_first and distinguishes:
            # without quotes and control characters; the last part of a path
            plain = re.sub(r"[\x00-\x1f]", " ", value.strip("'\"")).rstrip("/").rpartition("/")[2]
            values[key] = truncate(plain, LONGEST // 3)
    return [f"{key}={value}" for key, value in short_keys(values).items()]
