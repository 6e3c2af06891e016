"""Pages about a run: the command that repeats it, where it ran, its configuration with every default resolved."""

import os
import platform
import re
import shlex
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from lockstep.plan import Plan
from lockstep.run_files import CONFIG

PACKAGES = ("lockstep", "torch", "lightning", "numpy", "hydra-core", "tensorboard")


def texts_of(plan: Plan) -> dict[str, str]:
    """Return pages of Markdown by name."""
    words = [word for word in plan.command.words if not word.startswith(("resume=", "ckpt_path="))]
    command = code(" ".join(["python train.py", *map(shlex.quote, words)]))
    config = Path(plan.run_dir) / CONFIG
    texts = {"run/command": command, "run/environment": _environment_of(plan)}
    return texts | ({"run/configuration": code(config.read_text())} if config.is_file() else {})


def _environment_of(plan: Plan) -> str:
    """Return versions, machine and devices, as a table."""
    rows, world = versions_and_machine(gpu=plan.accelerator == "gpu"), plan.world
    ranks = f"{plan.world_size}, joined by {world.backend}" if world.distributed else str(plan.world_size)
    rows |= {"ranks": ranks, "threads of a rank": str(plan.threads)}
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items() if value)])


def versions_and_machine(gpu: bool) -> dict[str, str]:
    """Return where and with what this process computes."""
    import torch

    rows = {"Python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}
    info = Path("/proc/cpuinfo")
    processors = re.findall("model name\\s*: (.*)", info.read_text()) if info.is_file() else []
    rows |= {"system": platform.platform(), "processor": [*processors, platform.machine()][0]}
    rows["cores"] = str(os.cpu_count())
    if gpu:
        rows["GPU"] = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
        rows["CUDA"] = str(torch.version.cuda)
    return rows


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # lockstep from a checkout that is not installed
        return ""


def code(text: str) -> str:
    """Return text as a code block of Markdown."""
    return "\n".join(f"    {line}" for line in text.splitlines())
