"""What a rank's work takes: seconds of a batch by phase, memory."""

import resource
from collections.abc import Mapping

import torch

from lockstep.plan import Plan
from lockstep.schemas import Lightning

WORK = "work"
"""The group of these curves."""


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
