"""What this machine has for a run: its GPUs, its cores, and the threads of each rank."""

import os
from pathlib import Path
from typing import Literal

from lockstep.base.config_error import config_error
from lockstep.strategies.strategy import Strategy

GPU_FILES = ("nvidia*", "kfd", "dxg")  # of NVIDIA's driver, AMD's, and WSL's; without one torch is not imported
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def gpu_count() -> int:
    if not any(path for pattern in GPU_FILES for path in Path("/dev").glob(pattern)):
        return 0
    import torch

    return torch.cuda.device_count()


def resolve_accelerator(
    requested: Literal["auto", "cpu", "gpu"], devices: int, strategy: Strategy
) -> Literal["cpu", "gpu"]:
    """Resolve `auto`; raise a ConfigError if there are fewer GPUs than requested."""
    gpus = 0 if requested == "cpu" else gpu_count()
    if gpus == 0 and requested == "gpu":
        raise config_error("accelerator", "gpu", "torch sees no GPU on this machine", "accelerator=cpu")
    if devices > gpus > 0 and not strategy.share_device:
        reason = f"torch sees {gpus} GPU{'s' if gpus > 1 else ''} on this machine"
        sharing = ", strategy.share_device=true" if "share_device" in vars(strategy) else ""
        raise config_error("devices", devices, reason, f"devices={gpus}{sharing}, or accelerator=cpu")
    return "gpu" if gpus else "cpu"


def usable_cores(root: Path = Path("/")) -> int:
    """Return how many cores this process may use: by its affinity, and by the CPU quota of its container."""
    cores: float = len(os.sched_getaffinity(0))
    file = root / "proc/self/cgroup"
    for line in file.read_text().splitlines() if file.is_file() else ():
        if line.startswith("0::"):  # version 2 of control groups
            group = root / "sys/fs/cgroup" / line.removeprefix("0::").strip("/")
            cores = min([cores, *map(quota, (group, *group.parents))])
    return max(1, int(cores))


def quota(group: Path) -> float:
    """Return the CPU quota of a control group in cores; infinity if it has none."""
    try:
        limit, period = map(float, (group / "cpu.max").read_text().split())
        return limit / period
    except (OSError, ValueError):  # no such file, or `max`
        return float("inf")


def default_threads(ranks: int) -> int:
    """Return the threads of each of a machine's ranks: those that the environment names, or its share of the cores."""
    for name in VARIABLES:
        threads = os.environ.get(name, "").partition(",")[0].strip()
        if threads.isdecimal() and int(threads) > 0:
            return int(threads)
    return max(1, usable_cores() // ranks)
