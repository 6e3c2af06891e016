"""The objective of a user's task. The task is created on a rank: the command needs the names alone."""

import json
from functools import partial
from typing import Any

from lockstep.objectives import Mean, Objective
from lockstep.schemas.task import UserTask


def user_objective(choice: UserTask) -> Objective:
    """Return the objective of a task, which is created once in a process, when a loss is first computed."""
    call = json.dumps(choice.call)
    means = tuple(Mean(name, mode, partial(_sum, call, name)) for name, mode in choice.better.items())
    return Objective(partial(_sum, call, "loss"), means, monitor=choice.monitor)


def _sum(call: str, name: str, outputs: Any, targets: Any) -> Any:
    from lockstep.targets.task import user_task  # with torch

    return user_task(call).sum_of(name, outputs, targets)
