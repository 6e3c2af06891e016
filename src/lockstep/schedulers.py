"""The learning-rate schedule that a plan names, the same for every engine."""

import math
from collections.abc import Mapping
from typing import Any, cast

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from lockstep import schemas
from lockstep.config_error import require
from lockstep.optimizers import create_optimizer
from lockstep.plan import Plan
from lockstep.safe_loading import is_loadable
from lockstep.schemas.target import ARGS, KEY, PARTIAL

CHILDREN = "schedulers"  # the argument of torch's schedules that contain others, as SequentialLR


def create_scheduler(plan: Plan, optimizer: Optimizer) -> LRScheduler | None:
    """Create the schedule of the whole run, to step at its `interval`; None if the rate is constant."""
    choice, total = plan.scheduler, plan.steps.total_steps
    match choice:
        case schemas.Constant():
            return None
        case schemas.OneCycle():
            return LambdaLR(optimizer, lambda step: one_cycle(step, choice.warmup_fraction, total))
        case schemas.WarmupLinear():
            return LambdaLR(optimizer, lambda step: warmup_linear(step, choice.warmup_steps, total))
        case schemas.UserScheduler():
            steps = total if choice.interval == "step" else plan.max_epochs
            return create_user_scheduler(choice, optimizer, steps, plan.objective.better(choice.metric(plan)))


def is_plateau(choice: schemas.UserScheduler, optimizer: schemas.Optimizer) -> bool:
    """Return whether a schedule steps by a metric, after trying it on an optimizer; reject it if it cannot be used."""
    from lockstep.targets.locate import check

    kind = check("scheduler", _with_optimizer(choice.call, None), dict.fromkeys(("mode", "total_steps")))
    plateau = isinstance(kind, type) and issubclass(kind, ReduceLROnPlateau)
    reason, hint = "a plateau is looked for after each epoch", "scheduler._interval_=epoch"
    require(not plateau or choice.interval != "step", "scheduler._interval_", "step", reason, hint)
    scheduler = create_user_scheduler(choice, create_optimizer(optimizer, nn.Linear(1, 1)), 10**6, "min")
    reason = "its state is more than plain values and tensors, so no run could be resumed from a checkpoint"
    require(is_loadable(scheduler.state_dict()), f"scheduler.{KEY}", choice.call[KEY], reason, "another scheduler")
    return plateau


def create_user_scheduler(choice: schemas.UserScheduler, optimizer: Optimizer, steps: int, mode: str) -> LRScheduler:
    """Create a user's schedule, with defaults for its parameters `total_steps` and, of a ReduceLROnPlateau, `mode`."""
    from lockstep.targets.locate import create

    key, path = f"scheduler.{KEY}", choice.call[KEY]
    has_total = steps > 0 and "epochs" not in choice.arguments
    defaults: dict[str, Any] = {"mode": mode} if choice.plateau else {"total_steps": steps} if has_total else {}
    scheduler = create("scheduler", _with_optimizer(choice.call, optimizer), defaults)
    reason = f"it makes a {type(scheduler).__name__}, and not an LRScheduler"
    require(isinstance(scheduler, LRScheduler), key, path, reason, "the path of a torch scheduler")
    return cast(LRScheduler, scheduler)


def _with_optimizer(call: Mapping[str, Any], optimizer: Optimizer | None) -> dict[str, Any]:
    """Return the call of a schedule, and of those within it, with the optimizer as the first argument."""
    children = call.get(CHILDREN)
    within = {CHILDREN: [_with_optimizer(child, optimizer) for child in children]} if isinstance(children, list) else {}
    return {**call, **within, PARTIAL: False, ARGS: [optimizer, *call.get(ARGS, [])]}


def one_cycle(step: int, warmup_fraction: float, total: int) -> float:
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


def warmup_linear(step: int, warmup: int, total: int) -> float:
    """Return the factor on the rate at 0-based `step`: 1/w, 2/w, … 1 over w warm-up steps, then linearly to 0."""
    if step < warmup:
        return (step + 1) / warmup
    return max(0, total - step) / max(1, total - warmup)
