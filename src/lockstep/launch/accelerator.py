"""Resolve a run's accelerator and backend on this machine, or reject one that is not available."""

from pathlib import Path
from typing import Literal

from lockstep.base.config_error import config_error, require
from lockstep.plan import schemas
from lockstep.strategies.strategy import Strategy

GPU_FILES = ("nvidia*", "kfd", "dxg")  # of NVIDIA's driver, AMD's, and WSL's; without one torch is not imported


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
    if gpus == 0:
        reason = "torch sees no GPU on this machine"
        require(requested != "gpu", "accelerator", requested, reason, "accelerator=cpu")
        return "cpu"
    if devices > gpus and not strategy.share_device:
        reason = f"torch sees {gpus} GPU{'s' if gpus > 1 else ''} on this machine"
        sharing = ", strategy.share_device=true" if "share_device" in vars(strategy) else ""
        raise config_error("devices", devices, reason, f"devices={gpus}{sharing}, or accelerator=cpu")
    return "gpu"


def require_backend(process_group: schemas.ProcessGroup) -> None:
    backend = process_group.backend
    if backend == "auto":
        return
    import torch.distributed as dist

    available, hint = dist.is_backend_available(backend), "process_group.backend=auto, or install a torch that has it"
    require(available, "process_group.backend", backend, "this torch was built without it", hint)
