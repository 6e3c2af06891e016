"""The optimizer and the learning-rate schedule that a plan names, the same for every engine."""

import math
from collections.abc import Iterable
from typing import Any, cast

from torch import nn
from torch.optim import LBFGS, SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from lockstep import schemas, targets
from lockstep.config_error import require
from lockstep.schemas.target import KEY, PARTIAL


def create_optimizer(choice: schemas.Optimizer, net: nn.Module) -> Optimizer:
    groups = parameter_groups(choice, net)
    match choice:
        case schemas.SGD():
            return SGD(groups, lr=choice.lr, momentum=choice.momentum, weight_decay=choice.weight_decay)
        case schemas.Adam():
            kind = AdamW if choice.name == "adamw" else Adam
            # all parameters in each call: the same bits as one after the other, the default on a CPU
            return kind(groups, lr=choice.lr, weight_decay=choice.weight_decay, foreach=True)
        case schemas.OwnOptimizer():
            optimizer = targets.create("optimizer", {**choice.call, PARTIAL: True})(groups)
            made = type(optimizer).__name__
            why, instead = f"it makes a {made}, and not an Optimizer", "the path of a torch optimizer"
            require(isinstance(optimizer, Optimizer), f"optimizer.{KEY}", choice.call[KEY], why, instead)
            why = f"{made} computes the loss several times a step, and the engines compute it once"
            require(not isinstance(optimizer, LBFGS), f"optimizer.{KEY}", choice.call[KEY], why, "another optimizer")
            return cast(Optimizer, optimizer)


def parameter_groups(choice: schemas.Optimizer, net: nn.Module) -> list[dict[str, Any]]:
    """One group of all that trains; or a second one, without decay, of biases and what normalises: of one dimension.

    Decay draws a weight to 0 so that no input counts too much. A shift or a scale has no such excess to give up.
    """
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    if not choice.spares_bias_and_norm:
        return [{"params": parameters}]
    spared = [parameter for parameter in parameters if parameter.dim() <= 1]
    decayed = [parameter for parameter in parameters if parameter.dim() > 1]
    return [{"params": decayed}, {"params": spared, "weight_decay": 0.0}]


def zero_grad(parameters: Iterable[nn.Parameter]) -> None:
    """What `optimizer.zero_grad()` does; it asks the profiler first, which takes longer than a small net's forward."""
    for parameter in parameters:
        parameter.grad = None


def create_scheduler(choice: schemas.Scheduler, optimizer: Optimizer, total_steps: int) -> LRScheduler | None:
    """A schedule to step once per optimizer step, `total_steps` of them in the whole run; None keeps the rate."""
    match choice:
        case schemas.Constant():
            return None
        case schemas.OneCycle():
            return LambdaLR(optimizer, lambda step: one_cycle(step, choice.warmup_fraction, total_steps))
        case schemas.WarmupLinear():
            return LambdaLR(optimizer, lambda step: warmup_linear(step, choice.warmup_steps, total_steps))


def one_cycle(step: int, warmup_fraction: float, total: int) -> float:
    """The factor on the rate at 0-based `step`: half a cosine from 1/25 up to 1, another down to 1/250,000.

    The curve of torch's OneCycleLR (Smith and Topin, Super-Convergence). That class cannot be resumed for more steps,
    changes the momentum as well, and divides by 0 where the warm-up is a single step.
    """
    start, end = 1 / 25, 1 / 250_000
    peak, last = max(warmup_fraction * total - 1, 0), total - 1
    if step < peak:
        return _half_cosine(start, 1, step / peak)
    return _half_cosine(1, end, min(1, (step - peak) / (last - peak)) if last > peak else 0)


def _half_cosine(first: float, last: float, share: float) -> float:
    return last + (first - last) / 2 * (1 + math.cos(math.pi * share))


def warmup_linear(step: int, warmup: int, total: int) -> float:
    """The factor on the rate at 0-based `step`: 1/w, 2/w, … 1 over w warm-up steps, then in a line down to 0."""
    if step < warmup:
        return (step + 1) / warmup
    return max(0, total - step) / max(1, total - warmup)
