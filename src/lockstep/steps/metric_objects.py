"""The torchmetrics objects of a module."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from lockstep.parallel.messages import all_gather_tensor
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.private_api.torchmetrics import (
    added_states,
    compute_from,
    is_metric,
    metric_state,
    restore_metric,
    widen_metric,
)


def metric_objects(module: nn.Module) -> dict[str, Any]:
    return {name: child for name, child in module.named_modules() if is_metric(child)}


def state_sizes(metrics: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the bytes of each state of the metrics whose states ranks add up, by name; nothing in a single process."""
    if not dist.is_initialized():
        return {}
    states = {name: added_states(metric) for name, metric in metrics.items()}
    return {name: [state.nbytes for state in values] for name, values in states.items() if values}


def compute_together(metrics: Mapping[str, Any], sizes: Sequence[Mapping[str, Sequence[int]]]) -> None:
    """Compute metrics by one message with the states of all, if their `state_sizes` are those of all ranks.

    torchmetrics would send two or three messages for each state. Its metrics keep their values until the next update.
    """
    alike = {name for name, size in sizes[0].items() if all(each.get(name) == size for each in sizes)}
    shared = {name: metric for name, metric in metrics.items() if name in alike}
    if not shared:
        return
    states = [state for metric in shared.values() for state in added_states(metric)]
    ranks = all_gather_tensor(torch.cat([state.contiguous().reshape(-1).view(torch.uint8) for state in states]))
    parts = [torch.split(row, [state.nbytes for state in states]) for row in ranks]
    gathered = iter(
        [part.clone().view(state.dtype).view(state.shape).to(state.device) for part in of_ranks]  # a clone is aligned
        for state, of_ranks in zip(states, zip(*parts, strict=True), strict=True)
    )
    for name, metric in shared.items():
        compute_from(metric, [next(gathered) for _ in sizes[0][name]])


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
