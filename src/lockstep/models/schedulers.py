"""Schedules of the learning rate over a run of known length, which `conf/scheduler` names."""

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from lockstep.base.config_error import require


def one_cycle(optimizer: Optimizer, total_steps: int, warmup_fraction: float = 0.3) -> LambdaLR:
    """Return a schedule that goes up to the optimizer's rate for a share of the steps, then down to almost 0."""
    key, reason = "scheduler.warmup_fraction", "it must be at least 0 and below 1"
    require(0 <= warmup_fraction < 1, key, warmup_fraction, reason, f"{key}=0.3")
    require_length("onecycle", total_steps)
    return LambdaLR(optimizer, lambda step: one_cycle_factor(step, warmup_fraction, total_steps))


def warmup_linear(optimizer: Optimizer, total_steps: int, warmup_steps: int = 100) -> LambdaLR:
    """Return a schedule that goes up to the optimizer's rate in some steps, then linearly down to 0."""
    require_length("warmup_linear", total_steps)
    key, reason = "scheduler.warmup_steps", f"the run has {total_steps} step{'s' if total_steps > 1 else ''}"
    require(0 <= warmup_steps < total_steps, key, warmup_steps, reason, f"{key}={int(total_steps) // 10}")
    return LambdaLR(optimizer, lambda step: warmup_linear_factor(step, warmup_steps, total_steps))


def require_length(name: str, total_steps: float) -> None:
    reason = "the length of an epoch of the data is unknown"
    require(math.isfinite(total_steps) and total_steps > 0, "scheduler", name, reason, "scheduler=none")


def one_cycle_factor(step: int, warmup_fraction: float, total: int) -> float:
    """Return the factor on the rate at 0-based `step`: half a cosine from 1/25 up to 1, another down to 1/250,000.

    The curve of torch's OneCycleLR (Smith and Topin, Super-Convergence). That class cannot be resumed for more steps,
    changes the momentum as well, and divides by 0 where the warm-up is a single step.
    """
    start, end = 1 / 25, 1 / 250_000
    peak, last = max(warmup_fraction * total - 1, 0), total - 1
    if step < peak:
        return _half_cosine(start, 1, step / peak)
    return _half_cosine(1, end, min(1, (step - peak) / (last - peak)) if last > peak else 0)


def _half_cosine(first: float, last: float, fraction: float) -> float:
    return last + (first - last) / 2 * (1 + math.cos(math.pi * fraction))


def warmup_linear_factor(step: int, warmup: int, total: int) -> float:
    """Return the factor on the rate at 0-based `step`: 1/w, 2/w, … 1 over w warm-up steps, then linearly to 0."""
    if step < warmup:
        return (step + 1) / warmup
    return max(0, total - step) / max(1, total - warmup)
