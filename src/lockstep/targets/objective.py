"""The objective of a task of the user's own, which is made on a rank: the command asks for names alone."""

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from lockstep.objectives import Mean, Objective
from lockstep.schemas.task import UserTask

if TYPE_CHECKING:
    from torch import Tensor


def own_objective(choice: UserTask) -> Objective:
    """The task is made when its loss is first asked for, once in a process."""
    call = json.dumps(choice.call)
    entries = tuple(Mean(name, better, partial(_metric_sum, call, name)) for name, better in choice.better.items())
    return Objective(partial(_loss_sum, call), entries, monitor=choice.monitor)


def _loss_sum(call: str, outputs: Any, targets: "Tensor") -> "Tensor":
    from lockstep.targets.task import task_of  # with torch

    return task_of(call).loss_sum(outputs, targets)


def _metric_sum(call: str, name: str, outputs: Any, targets: "Tensor") -> "Tensor":
    from lockstep.targets.task import task_of

    return task_of(call).metric_sum(name, outputs, targets)
