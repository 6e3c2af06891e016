"""The hyper-parameters that loggers list: every option of the plan by its key."""

import json
from dataclasses import asdict
from typing import Any

from lockstep.config_error import cut
from lockstep.loggers import Value
from lockstep.plan import Plan
from lockstep.schemas.keys import flatten, is_below

WATCHED = (
    *("name", "run_dir", "command", "logger", "ckpt_path", "resume", "train", "test", "show_shapes", "process_group"),
    "model_summary",
    *("optimized_metric", "data.root", "callbacks", "checkpoint", "record", "detect_nan", "log_every_n_steps"),
)
"""Where a run lies and how it is watched: nothing that it is tuned by."""

ITSELF = ("optimizer", "scheduler", "task")
"""What a LightningModule brings itself."""


def hparams_of(plan: Plan) -> dict[str, Value]:
    """By the keys of the command line; what follows from them (world size, backend) is left out: it would be listed as
    one more thing that varies.
    """
    options = flatten(asdict(plan))
    left_out = (*WATCHED, *(ITSELF if plan.model.lightning else ()))
    return {key: plain(value) for key, value in options.items() if not is_below(key, left_out)}


def plain(value: Any) -> Value:
    """One number or text; a value that is none is text in all runs alike, so that they can be told apart by it."""
    if isinstance(value, str | int | float):
        return value
    return cut(json.dumps(value, default=str), 100)
