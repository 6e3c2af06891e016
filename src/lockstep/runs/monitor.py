"""What people watch of a run beside its numbers; loggers of rank 0 write it: see docs/monitoring.md."""

import os
import platform
import re
import resource
import shlex
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

import torch

from lockstep.base.private_api.tensorboard import add_text
from lockstep.plan.plan import Plan
from lockstep.plan.run_label import MONITORING, HyperParameter, plain_hparam
from lockstep.plan.schemas.groups import is_below
from lockstep.runs.run_files import CONFIG

if TYPE_CHECKING:
    from lockstep.runs.loggers import Loggers

CODE = "    "  # the indentation of a code block in Markdown
PACKAGES = ("lockstep", "torch", "lightning", "numpy", "hydra-core", "tensorboard")


def open_loggers(plan: Plan, rank: int, steps: int) -> "Loggers":
    """Open the loggers of a run whose training begins after `steps` steps; log its texts and hyper-parameters."""
    from lockstep.runs import loggers  # with Lightning, which the command does without

    opened = loggers.create(plan, rank, steps, hparams_of(plan))
    if (board := opened.board) is not None:
        for name, text in texts_of(plan).items():
            add_text(board.writer, name, text)
    return opened


def hparams_of(plan: Plan) -> dict[str, HyperParameter]:
    """Return the options by the keys of the command line, and not what follows from them (world size, backend)."""
    return {key: plain_hparam(value) for key, value in plan.options.items() if not is_below(key, MONITORING)}


def work_of(device: torch.device, seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of a batch by phase, and the peak memory of this process or of tensors on a GPU, as curves."""
    times = {f"work/step_seconds/{name}": value for name, value in seconds.items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
    return times | {"work/memory_GiB": peak / 2**30}


def texts_of(plan: Plan) -> dict[str, str]:
    """Return pages of Markdown by name: the command, versions and devices as a table, the configuration."""
    words = [word for word in plan.command.words if not word.startswith(("resume=", "ckpt_path="))]
    rows, world, config = versions_and_machine(gpu=plan.accelerator == "gpu"), plan.world, Path(plan.run_dir) / CONFIG
    ranks = f"{plan.world_size}, joined by {world.backend}" if world.distributed else str(plan.world_size)
    rows |= {"ranks": ranks, "threads of a rank": str(plan.threads)}
    table = "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items() if value)])
    texts = {"run/command": indent(shlex.join(["python", "train.py", *words]), CODE), "run/environment": table}
    return texts | ({"run/configuration": indent(config.read_text(), CODE)} if config.is_file() else {})


def versions_and_machine(gpu: bool) -> dict[str, str]:
    """Return where and with what this process computes."""
    rows = {"Python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):  # lockstep from a checkout that is not installed
            rows[name] = version(name)
    info = Path("/proc/cpuinfo")
    processors = re.findall("model name\\s*: (.*)", info.read_text()) if info.is_file() else []
    rows |= {
        "system": platform.platform(),
        "processor": [*processors, platform.machine()][0],
        "cores": str(os.cpu_count()),
    }
    if gpu:
        names = map(torch.cuda.get_device_name, range(torch.cuda.device_count()))
        rows |= {"GPU": ", ".join(names), "CUDA": str(torch.version.cuda)}
    return rows
