"""The optimizer that a plan names, the same for every engine."""

from collections.abc import Iterable
from typing import Any, cast

from torch import nn
from torch.optim import LBFGS, SGD, Adam, AdamW, Optimizer

from lockstep import schemas
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
        case schemas.UserOptimizer():
            from lockstep.targets.locate import create  # for the user's code alone

            optimizer = create("optimizer", {**choice.call, PARTIAL: True})(groups)
            made = type(optimizer).__name__
            reason, hint = f"it makes a {made}, and not an Optimizer", "the path of a torch optimizer"
            require(isinstance(optimizer, Optimizer), f"optimizer.{KEY}", choice.call[KEY], reason, hint)
            reason = f"{made} computes the loss several times a step, and the engines compute it once"
            require(not isinstance(optimizer, LBFGS), f"optimizer.{KEY}", choice.call[KEY], reason, "another optimizer")
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


def needs_no_closure(optimizer: Optimizer) -> bool:
    """Whether an optimizer steps by the gradients that are there: those of torch do, except L-BFGS."""
    return type(optimizer).__module__.startswith("torch.optim") and not isinstance(optimizer, LBFGS)
