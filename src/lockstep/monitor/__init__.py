"""What those who watch a run see beside its numbers, decided here and written by its loggers: see docs/monitoring.md.

Both engines call the same methods at the same moments; above rank 0 there is nobody to write.
"""

import json
import resource
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from lockstep import loggers
from lockstep.config_error import truncate
from lockstep.loggers import HyperParameter, Loggers
from lockstep.loggers.tensorboard import Layout
from lockstep.monitor.texts import texts_of
from lockstep.plan import Plan
from lockstep.schemas import Lightning
from lockstep.schemas.keys import flatten, is_below

WORK = "work"
"""The group of these curves."""


WATCHED = (
    *("name", "run_dir", "command", "logger", "ckpt_path", "resume", "train", "test", "show_shapes", "process_group"),
    "model_summary",
    *("optimized_metric", "data.root", "callbacks", "checkpoint", "record", "detect_nan", "log_every_n_steps"),
)
"""Where a run lies and how it is watched: nothing that it is tuned by."""

ITSELF = ("optimizer", "scheduler", "task")
"""What a LightningModule brings itself."""


def open_loggers(plan: Plan, rank: int, steps: int) -> Loggers:
    """The loggers of a run whose training begins behind so many steps, with all that is known beforehand."""
    opened = loggers.create(plan, rank, steps, hparams_of(plan))
    if (board := opened.board) is not None:
        for name, text in texts_of(plan).items():
            board.log_text(name, text)
        board.log_layout(layout_of(plan))
    return opened


def hparams_of(plan: Plan) -> dict[str, HyperParameter]:
    """By the keys of the command line; what follows from them (world size, backend) is left out: it would be listed as
    one more thing that varies.
    """
    options = flatten(asdict(plan))
    left_out = (*WATCHED, *(ITSELF if plan.model.lightning else ()))
    return {key: plain(value) for key, value in options.items() if not is_below(key, left_out)}


def plain(value: Any) -> HyperParameter:
    """One number or text; a value that is none is text in all runs alike, so that they can be told apart by it."""
    if isinstance(value, str | int | float):
        return value
    return truncate(json.dumps(value, default=str), 100)


def layout_of(plan: Plan) -> Layout:
    """The layout of the page *Custom scalars*."""
    if plan.model.lightning:  # whatever it calls them
        train_and_val = {"loss": ["^(train|val|valid|validation)[/_].*loss.*$"], "accuracy": ["^(train|val).*acc.*$"]}
    else:
        names = [name.removeprefix("val/") for name in plan.objective.names("val")]
        train_and_val = {name: [rf"^(train|val)/{name}$"] for name in names}
    return {
        "training and validation": train_and_val,
        "learning rate": {"learning rate": ["^train/lr$", "^lr-.*$"]},
        "what a step takes": {
            "seconds by phase": [f"^{WORK}/step_seconds/.*$"],
            "samples per second": [f"^{WORK}/samples_per_second$"],
            "memory": [f"^{WORK}/memory_GiB$"],
        },
    }


def work_of(plan: Plan, device: torch.device, seconds: Mapping[str, float]) -> dict[str, float]:
    """By the names of curves.

    Args:
        seconds: of a batch, by phase.
    """
    by_hand = plan.gradient_sync == plan.engine.gradient_sync != Lightning.gradient_sync  # others overlap with backward
    told = {phase: own for phase, own in seconds.items() if phase != "communication" or by_hand}
    return {f"{WORK}/step_seconds/{phase}": own for phase, own in told.items()} | {f"{WORK}/memory_GiB": memory(device)}


def memory(device: torch.device) -> float:
    """The most that this process has held so far, of a GPU's memory the most that tensors have taken; in GiB."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
