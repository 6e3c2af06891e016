"""In which numbers a plan computes."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from lockstep.plan import Plan

MIXED = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
"""The short numbers that a plan's precision mixes in; the others mix none."""


def dtype_of(plan: "Plan") -> torch.dtype:
    """Of parameters and inputs."""
    return torch.float64 if plan.precision == "64-true" else torch.float32
