"""The optimizer and the learning-rate schedule that a plan names, the same for every engine."""

from collections.abc import Iterable

from torch.nn import Parameter
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from lockstep import choices


def create_optimizer(choice: choices.Optimizer, parameters: Iterable[Parameter]) -> Optimizer:
    match choice:
        case choices.SGD():
            return SGD(parameters, lr=choice.lr, momentum=choice.momentum, weight_decay=choice.weight_decay)
        case choices.Adam():
            kind = AdamW if choice.name == "adamw" else Adam
            return kind(parameters, lr=choice.lr, weight_decay=choice.weight_decay)


def create_scheduler(choice: choices.Scheduler, optimizer: Optimizer, total_steps: int) -> LRScheduler | None:
    """A schedule to step once per optimizer step, `total_steps` of them in the whole run; None keeps the rate."""
    match choice:
        case choices.Constant():
            return None
        case choices.OneCycle():
            peak = [group["lr"] for group in optimizer.param_groups]
            return OneCycleLR(optimizer, max_lr=peak, total_steps=total_steps, pct_start=choice.warmup_fraction)
        case choices.WarmupLinear():
            return LambdaLR(optimizer, lambda step: warmup_linear(step, choice.warmup_steps, total_steps))


def warmup_linear(step: int, warmup: int, total: int) -> float:
    """The factor on the rate at 0-based `step`: 1/w, 2/w, … 1 over w warm-up steps, then in a line down to 0."""
    if step < warmup:
        return (step + 1) / warmup
    return max(0, total - step) / max(1, total - warmup)
