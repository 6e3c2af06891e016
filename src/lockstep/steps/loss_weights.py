"""A loss that is a mean over something else than samples: tokens that count, pixels that are not ignored.

Its training_step returns `{"loss": …, "weight": n}`, the loss a mean over n. Gradients of loss × n are added over the
batches and ranks of an optimizer step, and divided once by the sum of n: exact, however unequal batches and ranks are.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from lockstep.config_error import require
from lockstep.parallel.messages import all_reduce_sums
from lockstep.plan import Plan


class LossWeights:
    """The weights of one rank. `batch`: that of the current batch, None if its step returned none.

    is_used: whether the steps return weights; None before the first one.
    window: the sum over earlier batches of the optimizer step.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.is_used: bool | None = None
        self.batch: float | None = None
        self.window = 0.0

    def begin_batch(self, is_first: bool) -> None:
        """Begin a batch, which may be the first one of an optimizer step."""
        self.batch = None
        if is_first:
            self.window = 0.0

    def end_batch(self) -> None:
        self.window += self.batch or 0.0

    def read(self, outputs: Any) -> float | None:
        """Return the weight in the outputs of a training_step; raise if it is invalid, or only some steps have one."""
        value = outputs.get("weight") if isinstance(outputs, dict) else None
        if value is None and not self.is_used:
            if outputs is not None:
                self.is_used = False
            return None
        if outputs is None:  # a step that is left out
            return None
        plan, key, name = self.plan, "model", self.plan.model.name
        reason, hint = "its training_step returns a weight in some steps alone", "one that returns it in every step"
        require(value is not None and self.is_used is not False, key, name, reason, hint)
        if self.is_used is None:
            reason, hint = "it optimizes manually, and its training_step returns a weight", "one that returns a loss"
            require(not plan.model.manual, key, name, reason, hint)
            reason, hint = "training_step returns the weight of a mean", "loss_reduction=mean"
            require(plan.loss_reduction == "mean", "loss_reduction", plan.loss_reduction, reason, hint)
            self.is_used = True
        weight = float(value)  # type: ignore[arg-type]
        reason = f"its training_step returns the weight {weight}"
        require(0 <= weight < math.inf, key, name, reason, "one that returns a number of 0 or more")
        return weight

    def divide(self, parameters: Sequence[nn.Parameter], device: torch.device) -> None:
        """Divide the gradients by the sum of the weights over ranks and batches. To be called by every rank."""
        total = all_reduce_sums(torch.tensor(self.window + (self.batch or 0.0), dtype=torch.float64), device).item()
        for parameter in parameters:
            if total and parameter.grad is not None:
                parameter.grad.div_(total)
