"""The values that a module logs under one name, over an epoch and in a single batch; and its torchmetrics objects."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchmetrics import Metric

from lockstep.base.config_error import ConfigError
from lockstep.base.messages import gather_values
from lockstep.base.precision import dtype_of
from lockstep.base.private_api.torchmetrics import (
    compute_from,
    metric_state,
    restore_metric,
    states_of,
    widen_metric,
)
from lockstep.plan.plan import Plan
from lockstep.runs.record.step_lines import Scalar, join, reduced, to_floats

REDUCTIONS = {"mean": "mean", "avg": "mean", "sum": "sum", "min": "min", "max": "max"}
LOADER = "/dataloader_idx_"  # what joins a name and the index of its dataloader, if an evaluation has several


@dataclass
class Value:
    """One name in one stage. `pending`: values and weights that are not in `total` yet.

    by_rank: the value and the weight in the current batch, by virtual rank.
    sync_dist, synced: whether they are reduced over all ranks, and their reduction.
    """

    name: str
    reduction: str
    on_step: bool
    on_epoch: bool
    prog_bar: bool
    logger: bool
    metric: Any = None
    total: float = 0.0
    weight: float = 0.0
    pending: list[tuple[Scalar, float]] = field(default_factory=list)
    by_rank: dict[int, tuple[Scalar, float]] = field(default_factory=dict)
    sync_dist: bool = False
    synced: float | None = None

    @property
    def options(self) -> list[Any]:
        """Return the arguments that create an equal, empty value, as plain values."""
        return [self.name, self.reduction, self.on_step, self.on_epoch, self.prog_bar, self.logger]

    @property
    def step_name(self) -> str:
        return self._forked("step") if self.on_epoch else self.name

    @property
    def epoch_name(self) -> str:
        return self._forked("epoch") if self.on_step else self.name

    def _forked(self, kind: str) -> str:
        """Return the name of a kind of its values; as in Lightning, the index of a dataloader comes last."""
        name, separator, index = self.name.partition(LOADER)
        return f"{name}_{kind}{separator}{index}"

    def reset(self) -> None:
        self.total, self.weight, self.pending = 0.0, 0.0, []
        if self.metric is not None:
            self.metric.reset()
            self.metric = None  # until it is logged again: of no values it cannot be computed

    def flush(self) -> None:
        for value, (_, weight) in zip(to_floats([value for value, _ in self.pending]), self.pending, strict=True):
            self.add(value * weight if self.reduction == "mean" else value, weight)
        self.pending = []

    def add(self, total: float, weight: float) -> None:
        self.total, self.weight = join(self.reduction, [(self.total, self.weight), (total, weight)])

    @property
    def shown(self) -> float:
        """Return the value of the batch on this rank, or over all ranks once it is reduced."""
        return float(next(iter(self.by_rank.values()))[0]) if self.synced is None else self.synced

    @property
    def joined(self) -> tuple[Scalar, float, str]:
        """Return total, weight and reduction of the batch over the virtual ranks."""
        is_mean, pairs = self.reduction == "mean", self.by_rank.values()
        totals = [(value * weight if is_mean else value, weight) for value, weight in pairs]
        return *(totals[0] if len(totals) == 1 else join(self.reduction, totals)), self.reduction

    def epoch_value(self, totals: Sequence[Any]) -> float | None:
        """Return the value of an epoch: of its metric, or of the totals of all ranks."""
        if self.metric is None:
            return reduced(self.reduction, totals)
        return float(self.metric.compute()) if self.on_epoch else None


def reduction_of(name: str, reduce_fx: Any) -> str:
    """Return the reduction that `reduce_fx` names, a word or a function."""
    word = getattr(reduce_fx, "__name__", str(reduce_fx))
    if word.lower() not in REDUCTIONS:
        raise ConfigError(f"self.log({name!r}, reduce_fx={word}): it is not one of mean, sum, min, max.")
    return REDUCTIONS[word.lower()]


def metric_objects(module: nn.Module) -> dict[str, Any]:
    return {name: child for name, child in module.named_modules() if isinstance(child, Metric)}


def compute_together(metrics: Mapping[str, Any]) -> None:
    """Compute metrics from the states of all ranks, by one message; they keep their values until the next update."""
    if metrics and dist.is_initialized():
        ranks = gather_values({name: states_of(metric) for name, metric in metrics.items()}, to_all=True)
        for name, metric in metrics.items():
            compute_from(metric, [rank[name] for rank in ranks])


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
