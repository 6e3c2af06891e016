"""What a run is called where runs are told apart: `ddp×2 mlp lr=0.003 · 14-03-12`."""

import re
import time
from pathlib import Path

from lockstep.config_error import truncate
from lockstep.plan import Plan
from lockstep.schemas.keys import is_below, short_keys

SHOWN = ("engine", "strategy", "devices", "num_nodes", "model")
"""What every label says first."""

WATCHED = (
    *("hydra", "name", "logger", "record", "checkpoint", "process_group", "threads", "accelerator", "optimized_metric"),
    *("resume", "ckpt_path", "show_shapes", "model_summary", "detect_nan", "log_every_n_steps", "train", "test"),
    *("callbacks", "trainer.enable_progress_bar", "model._target_", "data._target_", "data.root"),
)
"""Groups and keys that do not tell what is trained: in a label only where a sweep varies them."""

LONGEST = 90
"""Characters of what a label says of a run, of one value a third."""


def run_label(plan: Plan) -> str:
    """Strategy, devices, net, and what the command, or its sweep, has chosen beside them; at the end the time.

    The time is that of the run's folder, so that the jobs of a sweep have it in common; else it is now.
    """
    chosen = _chosen(plan)
    devices = plan.devices * plan.num_nodes
    typed = any(word.startswith("engine=") for word in plan.command.words)
    engine = plan.engine.name if plan.engine.name != "lightning" or typed else ""
    world = plan.strategy.name if devices == 1 else f"{plan.strategy.name}×{devices}"
    said = " ".join(filter(None, [engine, world, plan.model.name, *chosen]))
    return f"{truncate(said, LONGEST)} · {_time_of(plan)}"


def _chosen(plan: Plan) -> list[str]:
    """`lr=0.003`, by the last part of the key where that is enough."""
    values, swept = {}, plan.command.swept
    for word in plan.command.words:
        key, _, value = word.lstrip("+").partition("=")
        tells = key in swept if swept else not is_below(key, WATCHED)
        if not key.startswith(("~", "--")) and key not in SHOWN and tells:
            values[key] = _short(value)
    return [f"{key}={value}" for key, value in short_keys(values).items()]


def _short(value: str) -> str:
    """Without quotes, of a path the last part, and nothing that a folder's name may not hold."""
    plain = re.sub(r"[\x00-\x1f]", " ", value.strip("'\"")).rstrip("/").rpartition("/")[2]
    return truncate(plain, LONGEST // 3)


def _time_of(plan: Plan) -> str:
    dated = re.findall(r"\d{4}-\d\d-\d\d_(\d\d-\d\d-\d\d)", "/".join(Path(plan.run_dir).parts[-3:]))
    return dated[-1] if dated else time.strftime("%H-%M-%S")
