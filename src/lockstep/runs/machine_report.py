"""The machine that a run works on, and how much it works: see docs/monitoring.md."""

import os
import platform
import re
import resource
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

PACKAGES = ("lockstep", "torch", "lightning", "numpy", "hydra-core", "tensorboard")


def work_of(device: torch.device, seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of a batch by phase, and the peak memory of this process or of tensors on a GPU, as curves."""
    times = {f"work/step_seconds/{name}": value for name, value in seconds.items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
    return times | {"work/memory_GiB": peak / 2**30}


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
