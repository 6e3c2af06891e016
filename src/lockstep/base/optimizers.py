"""The steps of an optimizer, as the engine takes them."""

from collections.abc import Iterable

from torch import Tensor
from torch.optim import LBFGS, Adam, AdamW, Optimizer

IMPLEMENTATION = ("foreach", "fused", "capturable", "differentiable")
"""Options of a parameter group that choose how its step is computed, and are no state."""


def update_together(optimizer: Optimizer) -> Optimizer:
    """Have Adam update all parameters in each call: the same bits as one after the other, torch's default on a CPU."""
    for group in optimizer.param_groups if type(optimizer) in (Adam, AdamW) else ():
        is_default = group["foreach"] is None and not group["fused"] and not group["differentiable"]
        if is_default and not isinstance(group["lr"], Tensor):  # torch rejects that
            group["foreach"] = True
    return optimizer


def clear_gradients(optimizer: Optimizer) -> None:
    """Set every gradient to None. `optimizer.zero_grad()` asks the profiler first, which takes longer."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def needs_no_closure(optimizer: Optimizer) -> bool:
    """Whether an optimizer steps by the gradients that are there: torch's do, except L-BFGS."""
    return type(optimizer).__module__.startswith("torch.optim") and not isinstance(optimizer, LBFGS)


def learning_rate(optimizers: Iterable[Optimizer]) -> float:
    """Return the learning rate of the first parameter group, or 0 if there is none."""
    return next((float(group["lr"]) for optimizer in optimizers for group in optimizer.param_groups), 0.0)
