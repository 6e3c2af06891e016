"""A task of the user's own: an object with a `loss`, or one that is called as a loss, and perhaps metrics.

What they make of a batch is taken for its mean over samples, or for a number a sample, and becomes a sum: only sums can
be added over batches and ranks of unequal size. A batch without samples is not shown to them.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.config_error import require
from lockstep.random_state import preserve_generators, seed_all
from lockstep.schemas.facts import TaskFacts
from lockstep.schemas.target import KEY
from lockstep.schemas.task import UserTask
from lockstep.structures import tensors_in
from lockstep.targets.locate import create

TAKEN = ("loss", "samples")
"""Names that no metric may have."""


@cache
def task_of(call: str) -> "TaskAdapter":
    """The task of a target with its arguments, in JSON: one in a process."""
    return TaskAdapter(json.loads(call))


def make_task(choice: UserTask) -> "TaskAdapter":
    """A new one, for a run of its own: what it keeps, and code that was edited, count for one run."""
    task_of.cache_clear()
    return task_of(json.dumps(choice.call))


def describe_task(choice: UserTask) -> TaskFacts:
    """Return facts about the task.

    Raises:
        ConfigError: it has no loss, metrics of another form, or parameters that nobody would train.
    """
    task = make_task(choice)
    task.check()
    return TaskFacts(task.better, task.monitor)


class TaskAdapter:
    """The user's object, and sums of what it makes of batches."""

    def __init__(self, call: Mapping[str, Any]) -> None:
        self.path = call[KEY]
        with preserve_generators():
            seed_all(0)
            self.own = create("task", call)
        self.loss: Callable[[Any, Tensor], Any] = getattr(self.own, "loss", self.own)
        self.metrics: Mapping[str, Callable[[Any, Tensor], Any]] = getattr(self.own, "metrics", {})
        self.monitor: str = getattr(self.own, "monitor", "loss")
        self.place: tuple[torch.device, torch.dtype] | None = None

    @property
    def better(self) -> dict[str, Any]:
        """By each metric's name min or max; max where the task does not say."""
        said = getattr(self.own, "better", {})
        return {name: said.get(name, "max") for name in self.metrics}

    def check(self) -> None:
        """Refuse what is no task."""
        own, metrics, better = self.own, self.metrics, getattr(self.own, "better", {})
        hint = "an object with loss(outputs, targets), or one that is called so"
        self._require(callable(self.loss), f"it makes a {type(own).__name__} without a loss", hint)
        trains = isinstance(own, nn.Module) and any(parameter.requires_grad for parameter in own.parameters())
        self._require(not trains, "it has parameters, and the net's alone are trained", "a loss without")
        named = isinstance(metrics, Mapping) and all(map(callable, metrics.values()))
        self._require(named, "its metrics are no functions by name", "metrics = {NAME: FUNCTION, …}")
        for name in metrics:
            fits = isinstance(name, str) and name.isidentifier() and name not in TAKEN
            self._require(fits, f"a metric cannot be called {name}", "another name")
        fits = isinstance(better, Mapping) and {*better} <= {*metrics} and {*better.values()} <= {"min", "max"}
        self._require(fits, "its `better` is more than min or max of its metrics", "better = {NAME: 'min'}, say")
        known, reason = ["loss", *metrics], f"it has no metric {self.monitor} to monitor"
        self._require(self.monitor in known, reason, f"one of {', '.join(known)}")

    def _require(self, fits: bool, reason: str, hint: str) -> None:
        require(fits, f"task.{KEY}", self.path, reason, hint)

    def loss_sum(self, outputs: Any, targets: Tensor) -> Tensor:
        tensors = self._meet(outputs)
        if len(targets) == 0:
            return torch.stack([own.sum() for own in tensors]).sum()
        is_sum = getattr(self.own, "reduction", None) == "sum"  # as torch's losses say it
        return self._sum("loss", self.loss(outputs, targets), targets, is_sum)

    def metric_sum(self, name: str, outputs: Any, targets: Tensor) -> Tensor:
        tensors = self._meet(outputs)
        if len(targets) == 0:
            return tensors[0].new_zeros(())
        return self._sum(name, self.metrics[name](outputs, targets), targets, False)

    def _meet(self, outputs: Any) -> list[Tensor]:
        """The tensors among a net's outputs. Those of the task itself, such as classes' weights, go to where they are.

        Raises:
            ConfigError: there are none.
        """
        found = [own for own in tensors_in(outputs) if own.is_floating_point()]
        reason = f"a net's {type(outputs).__name__} holds no real numbers"
        self._require(bool(found), reason, "a net whose outputs do")
        place = found[0].device, torch.float64 if found[0].dtype == torch.float64 else torch.float32
        if isinstance(self.own, nn.Module) and place != self.place:
            self.own.to(*place)
            self.place = place
        return found

    def _sum(self, what: str, made: Any, targets: Tensor, is_sum: bool) -> Tensor:
        value = made if isinstance(made, Tensor) else torch.tensor(made, dtype=torch.float64)
        shape, count = tuple(value.shape), len(targets)
        if shape == ():
            return value if is_sum else value * count
        reason = f"its {what} of {count} samples has the shape {shape}"
        self._require(shape == (count,), reason, "one that makes a mean over samples, or a number for each")
        return value.sum()
