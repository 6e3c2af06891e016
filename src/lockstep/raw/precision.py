"""In which numbers a net computes: float32, float64, or mixed, with its losses scaled where float16 would underflow."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.plan import Plan
from lockstep.precision import MIXED, dtype_of


class Precision:
    """`dtype` is that of parameters and inputs. The other methods do what the name says, or nothing."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.dtype = dtype_of(plan)
        self.mixed = MIXED.get(plan.precision)
        self.device = device.type
        self.scaler = torch.amp.GradScaler(self.device, enabled=plan.precision == "16-mixed")

    def autocast(self) -> AbstractContextManager[None]:
        """Around forward and loss, never around backward. A cache of cast weights would serve one forward only."""
        if self.mixed is None:
            return nullcontext()
        return torch.autocast(self.device, self.mixed, cache_enabled=False)

    def scale(self, loss: Tensor) -> Tensor:
        return self.scaler.scale(loss)

    def unscale(self, optimizer: Optimizer) -> None:
        """The gradient as it is, before anyone measures or clips it."""
        if self.scaler.is_enabled():
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        """A step, left out by the scaler where float16 overflowed."""
        self.scaler.step(optimizer)
        self.scaler.update()
