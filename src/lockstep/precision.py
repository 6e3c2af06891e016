"""In which numbers a plan computes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from lockstep.plan import Plan

MIXED = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
"""The short numbers that a plan's precision mixes in; the others mix none."""


def dtype_of(plan: "Plan") -> torch.dtype:
    """Of parameters and inputs."""
    return torch.float64 if plan.precision == "64-true" else torch.float32


def convert(plan: "Plan", net: nn.Module) -> None:
    """Make floating parameters and buffers of the plan's type. Complex ones stay: `to` would drop a part of them."""
    if dtype_of(plan) == torch.float64:
        net.double()
    else:
        net.float()


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """New tensors are of this type."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)
