"""The torchmetrics objects of a module."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.private_api.torchmetrics import is_metric, metric_state, restore_metric, widen_metric


def metric_objects(module: nn.Module) -> dict[str, Any]:
    return {name: child for name, child in module.named_modules() if is_metric(child)}


def widen_metrics(plan: Plan, module: nn.Module) -> None:
    """Convert floating states of torchmetrics to float64 if the plan computes in it (`Metric.to` ignores dtypes)."""
    if dtype_of(plan) == torch.float64:
        for metric in metric_objects(module).values():
            widen_metric(metric)


@contextmanager
def preserve_metrics(module: nn.Module) -> Iterator[None]:
    """Restore the states of a module's torchmetrics afterwards."""
    metrics = metric_objects(module)
    before = {name: deepcopy(metric_state(metric)) for name, metric in metrics.items()}
    yield
    for name, metric in metrics.items():
        metric.reset()
        restore_metric(metric, before[name])
