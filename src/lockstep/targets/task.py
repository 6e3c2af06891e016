"""A user's task: an object with a `loss`, or a loss function, and perhaps metrics.

A value of a batch is its mean over samples, or one number a sample, and becomes a sum: only sums can be added over
batches and ranks of unequal size. The task does not see batches without samples.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lockstep.config_error import require
from lockstep.random_state import seeded
from lockstep.schemas.target import KEY
from lockstep.schemas.task import UserTask
from lockstep.structures import tensors_in
from lockstep.targets.locate import create


@cache
def user_task(call: str) -> "TaskAdapter":
    """Return the task of a target with its arguments, in JSON: the same one for a run."""
    return TaskAdapter(json.loads(call))


def create_task(choice: UserTask) -> "TaskAdapter":
    """Create the task of a run anew: it may hold state, and its code may have been edited."""
    user_task.cache_clear()
    return user_task(json.dumps(choice.call))


def describe_task(choice: UserTask) -> UserTask:
    """Return the task with the names of its metrics."""
    task = create_task(choice)
    task.check()
    return replace(choice, better={name: task.modes.get(name, "max") for name in task.metrics}, monitor=task.monitor)


class TaskAdapter:
    """The user's object, and sums of its values over batches."""

    def __init__(self, call: Mapping[str, Any]) -> None:
        self.path = call[KEY]
        self.task = seeded(0, lambda: create("task", call))
        self.loss: Callable[[Any, Tensor], Any] = getattr(self.task, "loss", self.task)
        self.metrics: Mapping[str, Callable[[Any, Tensor], Any]] = getattr(self.task, "metrics", {})
        self.modes: Mapping[str, Literal["min", "max"]] = getattr(self.task, "better", {})
        self.monitor: str = getattr(self.task, "monitor", "loss")

    def check(self) -> None:
        task = self.task
        reason, hint = (
            f"a {type(task).__name__} has no loss",
            "an object with loss(outputs, targets), or a function of these",
        )
        self._require(callable(self.loss), reason, hint)
        trains = isinstance(task, nn.Module) and any(parameter.requires_grad for parameter in task.parameters())
        self._require(not trains, "it has parameters, but only the net is trained", "a loss without parameters")
        reserved = {"loss", "samples"} & self.metrics.keys()
        self._require(not reserved, f"a metric cannot be called {min(reserved, default='')}", "another name")
        is_mode = self.modes.keys() <= self.metrics.keys() and {*self.modes.values()} <= {"min", "max"}
        self._require(is_mode, "`better` maps names of metrics to min or max", "better = {NAME: 'min'}, say")
        names, reason = ["loss", *self.metrics], f"it has no metric {self.monitor} to monitor"
        self._require(self.monitor in names, reason, f"one of {', '.join(names)}")

    def _require(self, condition: bool, reason: str, hint: str) -> None:
        require(condition, f"task.{KEY}", self.path, reason, hint)

    def sum_of(self, name: str, outputs: Any, targets: Tensor) -> Tensor:
        """Return the sum of the loss, or of a metric, over the samples of a batch."""
        tensors = [tensor for tensor in tensors_in(outputs) if tensor.is_floating_point()]
        reason = f"the net returns a {type(outputs).__name__} without real numbers"
        self._require(bool(tensors), reason, "a net that returns some")
        if (count := len(targets)) == 0:
            return torch.stack([tensor.sum() for tensor in tensors]).sum() * 0
        if isinstance(self.task, nn.Module):  # its tensors, such as class weights
            self.task.to(tensors[0].device, torch.float64 if tensors[0].dtype == torch.float64 else torch.float32)
        value = (self.loss if name == "loss" else self.metrics[name])(outputs, targets)
        tensor = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
        if tensor.shape == ():
            is_sum = name == "loss" and getattr(self.task, "reduction", None) == "sum"  # an attribute of torch's losses
            return tensor if is_sum else tensor * count
        reason = f"its {name} of {count} samples has the shape {tuple(tensor.shape)}"
        self._require(tensor.shape == (count,), reason, "one that returns a mean over samples, or a number for each")
        return tensor.sum()
