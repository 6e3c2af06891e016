"""The learning-rate schedule that a plan names, and when it steps: the same for every engine."""

import io
import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from lockstep import schemas
from lockstep.config_error import config_error, require
from lockstep.optimizers import create_optimizer
from lockstep.plan import Plan
from lockstep.safe_loading import load
from lockstep.schemas.target import KEY, PARTIAL

CHILDREN = "schedulers"
"""The argument of torch's schedules of schedules."""


def create_scheduler(plan: Plan, optimizer: Optimizer) -> LRScheduler | None:
    """The schedule of the whole run, to step as its `interval` says; None keeps the rate."""
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
            return _own_scheduler(choice, optimizer, steps, plan.objective.better(choice.metric(plan)))


# of the user's own


def is_plateau(choice: schemas.UserScheduler, optimizer: schemas.Optimizer) -> bool:
    """Return whether a schedule steps by a metric. It is tried on an optimizer of two parameters.

    Raises:
        ConfigError: it is none, it takes other arguments, or a checkpoint could not hold its state.
    """
    from lockstep.targets.locate import check

    call, path = choice.call, choice.call[KEY]
    waiting = {**call, CHILDREN: deferred(call)[CHILDREN]} if CHILDREN in call else call
    found = check("scheduler", waiting, dict.fromkeys(("optimizer", "mode", "total_steps")))
    plateau = isinstance(found, type) and issubclass(found, ReduceLROnPlateau)
    if plateau and choice.interval == "step":
        reason = "a plateau is looked for after each epoch"
        raise config_error("scheduler._interval_", "step", reason, "scheduler._interval_=epoch")
    if not plateau and choice.monitor is not None:
        reason = f"{path} looks at no metric"
        raise config_error("scheduler._monitor_", choice.monitor, reason, "it without")
    made = _own_scheduler(choice, create_optimizer(optimizer, nn.Linear(1, 1)), 10**6, "min")
    state = io.BytesIO()
    try:
        torch.save(made.state_dict(), state)
        state.seek(0)
        load(state)
    except Exception:
        reason = "its state is more than plain values and tensors, so no checkpoint could hold it"
        raise config_error(f"scheduler.{KEY}", path, reason, "another scheduler") from None
    return plateau


def _own_scheduler(choice: schemas.UserScheduler, optimizer: Optimizer, steps: int, better: str) -> LRScheduler:
    """What the target makes for an optimizer.

    Args:
        steps: of the schedule in the whole run, for one that has `total_steps`.
        better: min or max, for one that looks for a plateau and is not told its `mode`.
    """
    from lockstep.targets.locate import create, user_errors

    path = choice.call[KEY]
    filled: dict[str, Any] = {} if "epochs" in choice.arguments or not steps else {"total_steps": steps}
    if choice.plateau:
        filled = {"mode": better}
    partial = create("scheduler", deferred(choice.call), filled)
    with user_errors(f"scheduler.{KEY}={path}", "it raises this when it is called."):
        made = _with_optimizer(partial, optimizer)
    reason, hint = f"it makes a {type(made).__name__}, and not an LRScheduler", "the path of a torch scheduler"
    require(isinstance(made, LRScheduler), f"scheduler.{KEY}", path, reason, hint)
    return cast(LRScheduler, made)


def deferred(call: Mapping[str, Any]) -> dict[str, Any]:
    """The call of a schedule, and of those within it, to be made with the optimizer later."""
    children = call.get(CHILDREN)
    own = {CHILDREN: [deferred(child) for child in children]} if isinstance(children, list) else {}
    return {**call, **own, PARTIAL: True}


def _with_optimizer(partial: Any, optimizer: Optimizer) -> Any:
    children = partial.keywords.get(CHILDREN, [])
    if any(isinstance(child.func, type) and issubclass(child.func, ReduceLROnPlateau) for child in children):
        reason = "within another schedule nobody tells it a metric"
        raise config_error(f"scheduler.{CHILDREN}", ReduceLROnPlateau.__name__, reason, "it alone, or others")
    own = {CHILDREN: [_with_optimizer(child, optimizer) for child in children]} if children else {}
    return partial(optimizer, **own)


# the built-in curves


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
