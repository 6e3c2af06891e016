"""The dtypes of a plan's precision."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from lockstep.plan.plan import Plan

MIXED = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}  # the dtype of autocast for each mixed precision


def dtype_of(plan: "Plan") -> torch.dtype:
    """Return the dtype of parameters and inputs."""
    return torch.float64 if plan.precision == "64-true" else torch.float32


def convert(plan: "Plan", net: nn.Module) -> None:
    """Convert floating-point parameters and buffers to the plan's dtype. `to` would truncate complex ones."""
    net.double() if dtype_of(plan) == torch.float64 else net.float()


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Create new tensors with this dtype."""
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(previous)
