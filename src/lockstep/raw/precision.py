"""In which dtype a module computes: float32, float64, or mixed, with losses scaled where float16 would underflow."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.optimizers import needs_no_closure
from lockstep.plan import Plan
from lockstep.precision import MIXED, default_dtype, dtype_of

NO_CONTEXT = nullcontext()


class Precision:
    """`scale`: what a loss is scaled by for float16; None elsewhere."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.dtype = dtype_of(plan)
        self.mixed = MIXED.get(plan.precision)
        self.device = device.type
        self.scaler = torch.amp.GradScaler(self.device, enabled=plan.precision == "16-mixed")
        self.scale: Callable[[Tensor], Tensor] | None = self.scaler.scale if self.scaler.is_enabled() else None

    def forward_context(self) -> AbstractContextManager[None]:
        """Return a context for forward and loss, never for backward. A cache of weights would serve one forward."""
        if self.mixed is not None:
            return torch.autocast(self.device, self.mixed, cache_enabled=False)
        return NO_CONTEXT if self.dtype == torch.float32 else default_dtype(self.dtype)

    def unscale(self, optimizer: Optimizer) -> None:
        """Divide the gradients by the scale, before anyone measures or clips them."""
        if self.scaler.is_enabled():
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer, closure: Callable[[], Any]) -> None:
        """Step by the gradients that the closure computes; the scaler skips a step where float16 overflowed."""
        if self.scaler.is_enabled():
            closure()
            self.scaler.step(optimizer)
            self.scaler.update()
        elif needs_no_closure(optimizer):
            closure()
            optimizer.step()
        else:
            optimizer.step(closure)
