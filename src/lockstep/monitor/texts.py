"""Pages about a run: the command that repeats it, where it ran, its configuration with every default resolved."""

import os
import platform
import re
import shlex
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from textwrap import indent

from lockstep.plan import Plan
from lockstep.run_files import CONFIG

CODE = "    "  # the indentation of a code block in Markdown
PACKAGES = ("lockstep", "torch", "lightning", "numpy", "hydra-core", "tensorboard")


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
    import torch

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
