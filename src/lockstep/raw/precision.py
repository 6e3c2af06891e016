"""The dtype in which a module computes: float32, float64, or mixed; float16 also scales the loss against underflow."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.optimizers import needs_no_closure
from lockstep.plan import Plan
from lockstep.precision import MIXED, default_dtype, dtype_of

NO_CONTEXT = nullcontext()


class Precision:
    """`scale` multiplies a loss by the current scale for float16; None for other dtypes."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.dtype, self.mixed, self.device = dtype_of(plan), MIXED.get(plan.precision), device.type
        self.scaler = torch.amp.GradScaler(self.device, enabled=plan.precision == "16-mixed")
        self.scale: Callable[[Tensor], Tensor] | None = self.scaler.scale if self.scaler.is_enabled() else None

    def forward_context(self) -> AbstractContextManager[None]:
        """Return a context for forward and loss, not for backward. A cache of cast weights would serve one forward."""
        if self.mixed is not None:
            return torch.autocast(self.device, self.mixed, cache_enabled=False)
        return NO_CONTEXT if self.dtype == torch.float32 else default_dtype(self.dtype)

    def unscale(self, optimizer: Optimizer) -> None:
        """Divide the gradients by the scale, before they are measured and clipped."""
        if self.scale is not None:
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer, closure: Callable[[], Any]) -> None:
        """Step by the gradients that the closure computes; the scaler skips a step where float16 overflowed.

        A step without a loss is left out, too, as by Lightning's scaler.
        """
        if self.scale is not None:
            if closure() is not None:
                self.scaler.step(optimizer)
                self.scaler.update()
        elif needs_no_closure(optimizer):
            closure()
            optimizer.step()
        else:
            optimizer.step(closure)

    def clip_gradients(
        self, optimizer: Optimizer, gradient_clip_val: float | None = None, gradient_clip_algorithm: str = "norm"
    ) -> None:
        """Clip the gradients of an optimizer by norm or by value, if there is a limit."""
        if gradient_clip_val is None:
            return
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if gradient_clip_val > 0 and gradient_clip_algorithm == "value":
            nn.utils.clip_grad_value_(parameters, gradient_clip_val)
        elif gradient_clip_val > 0:
            nn.utils.clip_grad_norm_(parameters, gradient_clip_val)
