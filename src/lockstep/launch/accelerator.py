"""Which accelerator a run gets on this machine, and which backend: never another one than it was promised."""

import sys
from pathlib import Path
from typing import Literal

from lockstep import schemas
from lockstep.config_error import config_error, require
from lockstep.strategies.strategy import Strategy

GPU_FILES = ("nvidia*", "kfd", "dxg")
"""Device files of NVIDIA's driver, AMD's, and WSL's. Without one Linux has no GPU, and torch is not imported."""


def gpu_count() -> int:
    """GPUs that torch can use."""
    if sys.platform == "linux" and not any(path for pattern in GPU_FILES for path in Path("/dev").glob(pattern)):
        return 0
    import torch

    return torch.cuda.device_count()


def resolve_accelerator(
    wanted: Literal["auto", "cpu", "gpu"], devices: int, strategy: Strategy
) -> Literal["cpu", "gpu"]:
    """What `auto` comes to; raises ConfigError where GPUs are wanted that are not there."""
    gpus = 0 if wanted == "cpu" else gpu_count()
    if gpus == 0:
        if wanted == "gpu":
            raise config_error("accelerator", wanted, "torch sees no GPU on this machine", "accelerator=cpu")
        return "cpu"
    if strategy.share_device:
        return "gpu"
    if devices > gpus:
        reason = f"torch sees {gpus} GPU{'s' if gpus > 1 else ''} on this machine"
        sharing = ", strategy.share_device=true" if "share_device" in vars(strategy) else ""
        raise config_error("devices", devices, reason, f"devices={gpus}{sharing}, or accelerator=cpu")
    return "gpu"


def require_backend(process_group: schemas.ProcessGroup) -> None:
    """Refuse a backend that this torch was built without."""
    backend = process_group.backend
    if backend == "auto":
        return
    import torch.distributed as dist

    ways = {
        "gloo": "auto, or install a torch that has it",
        "nccl": "process_group.backend=gloo, or install a torch built with CUDA",
        "mpi": "process_group.backend=gloo, or build torch from source on a machine with MPI and start by mpirun",
    }
    has = dist.is_available() and dist.is_backend_available(backend)
    require(has, "process_group.backend", backend, "this torch was built without it", ways[backend])
