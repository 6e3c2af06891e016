"""The optimizer that a plan names, the same for every engine."""

from collections.abc import Iterable
from typing import Any, cast

from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Adam, AdamW, Optimizer

from lockstep import schemas
from lockstep.config_error import require
from lockstep.schemas.target import ARGS, KEY, PARTIAL


def create_optimizer(choice: schemas.Optimizer, net: nn.Module) -> Optimizer:
    """Create the optimizer of a net's parameters; reject what a user's target makes if it cannot be used."""
    groups = parameter_groups(choice, net)
    match choice:
        case schemas.SGD():
            return SGD(groups, lr=choice.lr, momentum=choice.momentum, weight_decay=choice.weight_decay)
        case schemas.Adam():
            kind = AdamW if choice.name == "adamw" else Adam
            return update_together(kind(groups, lr=choice.lr, weight_decay=choice.weight_decay))
        case schemas.UserOptimizer():
            from lockstep.targets.locate import create  # for the user's code alone

            optimizer, key = create("optimizer", {**choice.call, PARTIAL: False, ARGS: [groups]}), f"optimizer.{KEY}"
            name = type(optimizer).__name__
            reason = f"it makes a {name}, and not an Optimizer"
            require(isinstance(optimizer, Optimizer), key, choice.call[KEY], reason, "the path of a torch optimizer")
            reason = f"{name} computes the loss several times a step, and the engines compute it once"
            require(not isinstance(optimizer, LBFGS), key, choice.call[KEY], reason, "another optimizer")
            return cast(Optimizer, optimizer)


def parameter_groups(choice: schemas.Optimizer, net: nn.Module) -> list[dict[str, Any]]:
    """Return one group of all trained parameters, or a second one without weight decay, for biases and norm layers.

    Those are the parameters of one dimension: a shift or a scale has no excess that decay should take away.
    """
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    if choice.decay_bias_and_norm:
        return [{"params": parameters}]
    return [
        {"params": [parameter for parameter in parameters if parameter.dim() > 1]},
        {"params": [parameter for parameter in parameters if parameter.dim() <= 1], "weight_decay": 0.0},
    ]


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
