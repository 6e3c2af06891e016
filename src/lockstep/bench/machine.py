"""Where and with what the figures were measured: the head of the table."""

import os
import platform
import sys
from contextlib import suppress
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from lockstep.build import usable_cores
from lockstep.launch.accelerator import gpu_count


def machine() -> dict[str, str]:
    described = {
        "date": f"{datetime.now():%Y-%m-%d %H:%M}",
        "processor": f"{processor()}, {usable_cores()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "python": platform.python_version(),
        **{package: version(package) for package in ("torch", "lightning")},
        "threads": f"{usable_cores()} for one process",
    }
    if gpus := gpu_count():
        import torch

        described["gpu"] = f"{gpus} × {torch.cuda.get_device_name(0)}"
    return described


def processor() -> str:
    """The name of the model, where the system tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or sys.platform
