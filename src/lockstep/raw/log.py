"""What a module logs by `self.log`, over all ranks."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torchmetrics import Metric

from lockstep.base.messages import all_gather_json, gather_values
from lockstep.base.private_api.torchmetrics import compute_from, last_forward, states_of, widen_counts, widen_metric

if TYPE_CHECKING:
    from lockstep.raw.trainer import Trainer


def added(numbers: Iterable[Any]) -> Any:
    """Return the sum, from the first number to the last; Python's `sum` rounds in another way since 3.12."""
    return reduce(add, numbers, 0)


def joined(how: str, pairs: Iterable[Sequence[float]]) -> tuple[float, float]:
    """Return the total and the count of several (total, count); those of count 0 do not count."""
    counted = [pair for pair in pairs if pair[1]]
    totals, join = [total for total, _ in counted], {"min": min, "max": max}.get(how, added)
    return (join(totals) if totals else 0.0), added(count for _, count in counted)


def value_of(how: str, pairs: Iterable[Sequence[float]]) -> float | None:
    total, count = joined(how, pairs)
    return None if not count else total / count if how == "mean" else total


@dataclass
class Logged:
    """A logged value of one stage as (total, count); the total of a mean is the sum of values times samples.

    batch: of the current batch; its value is `shown`. metric: the attribute of the module, of a torchmetrics object.
    """

    name: str
    how: str
    on_step: bool
    on_epoch: bool
    metric: str | None = None
    epoch: Sequence[float] = (0.0, 0.0)
    batch: Sequence[float] | None = None
    shown: float = 0.0

    def named(self, kind: str) -> str:
        """Return the name of its values of a step or an epoch; if there are both, they get an ending."""
        name, separator, index = self.name.partition("/dataloader_idx_")
        return f"{name}_{kind}{separator}{index}" if self.on_step and self.on_epoch else self.name


class Log:
    """The values that the module logs.

    logged: by stage and name. metrics: the torchmetrics objects of the module by name. samples: of this rank in the
    batch; None between two. epoch_samples: of this rank by stage.
    """

    stage, suffix = "train", ""
    samples: int | None = None

    def __init__(self, trainer: "Trainer") -> None:
        self.trainer = trainer
        self.logged: dict[str, dict[str, Logged]] = {"train": {}, "val": {}, "test": {}}
        self.epoch_samples, self.metrics = dict[str, int](), dict[str, Metric]()
        for child in trainer.module.modules():
            if hasattr(child, "automatic_optimization"):
                object.__setattr__(child, "log", self.log)

    def begin_stage(self, stage: str) -> None:
        self.between_batches(stage)
        self.epoch_samples[stage] = 0
        self.metrics = {name: each for name, each in self.trainer.module.named_modules() if isinstance(each, Metric)}
        for metric in self.metrics.values() if self.trainer.dtype == torch.float64 else ():
            widen_metric(metric)

    def begin_batch(self, stage: str, samples: int, suffix: str = "") -> None:
        self.stage, self.suffix, self.samples = stage, suffix, samples
        self.epoch_samples[stage] += samples
        for entry in self.logged[stage].values():
            entry.batch = None

    def between_batches(self, stage: str) -> None:
        self.stage, self.suffix, self.samples = stage, "", None

    def log(self, name: str, value: Any, *_: Any, reduce_fx: Any = "mean", **options: Any) -> None:
        in_batch, samples, get = self.samples is not None, self.samples or 0, options.get
        trains, on_step, on_epoch = self.stage == "train" and in_batch, get("on_step"), get("on_epoch")
        on_step = trains if on_step is None else on_step and in_batch
        on_epoch = not on_step or (not trains if on_epoch is None else on_epoch)
        name = name + self.suffix if get("add_dataloader_idx", True) else name
        how = str(getattr(reduce_fx, "__name__", reduce_fx)).lower().replace("avg", "mean")
        entry = self.logged[self.stage].setdefault(name, Logged(name, how, on_step, on_epoch))
        count = float(self.epoch_samples.get(self.stage, 0) or 1)  # between batches: it is of the epoch
        if in_batch:
            count = float(samples if get("batch_size") is None else options["batch_size"]) if samples else 0.0
        count = 0.0 if get("rank_zero_only") and not self.trainer.is_global_zero else count
        if isinstance(value, Metric):
            entry.metric = next(name for name, each in self.metrics.items() if each is value)
            if not on_step or (last := last_forward(value)) is None:
                return
            value, count = last.double().mean(), float(samples)
        number = float(value.detach() if isinstance(value, Tensor) else value)
        pair = (number * count if how == "mean" else number, count)
        if on_step:
            entry.batch, entry.shown = pair, number
        if entry.on_epoch and entry.metric is None:
            entry.epoch = joined(how, [entry.epoch, pair])

    def of_batch(self) -> list[Logged]:
        return [entry for entry in self.logged[self.stage].values() if entry.batch is not None]

    def show(self, entry: Logged, kind: str, value: float) -> None:
        name, tensor = entry.named(kind), torch.tensor(value, dtype=torch.float64)
        self.trainer.logged_metrics[name] = tensor
        self.trainer.callback_metrics |= {entry.name: tensor, name: tensor}

    def show_batch(self) -> None:
        """Show this rank's values of a training batch to whoever reads `trainer.callback_metrics`."""
        for entry in self.of_batch():
            self.show(entry, "step", entry.shown)

    def reduce(self, stage: str, ends: bool) -> dict[str, float]:
        """Reduce what a stage has logged over all ranks: before its last hooks, and again at its end (`ends`)."""
        entries, means = self.logged[stage], dict[str, float]()
        pairs: dict[str, list[Sequence[float]]] = {}
        ranks = all_gather_json([vars(each) for each in entries.values()])
        for values in (values for rank in ranks for values in rank):
            empty = Logged(**values | {"epoch": (0.0, 0.0), "batch": None})
            entry = entries.setdefault(empty.name, empty)  # a rank without samples has logged nothing
            entry.metric = entry.metric or empty.metric
            pairs.setdefault(entry.name, []).append(values["epoch"])
        for metric in self.metrics.values():  # those that a hook computes, too
            widen_counts(metric)  # torchmetrics divides in float32
        in_order = [entries[name] for name in sorted(pairs)]
        compute_over_ranks([self.metrics[each.metric] for each in in_order if each.metric and each.on_epoch])
        for entry in in_order:
            value = value_of(entry.how, pairs[entry.name])
            if entry.metric is not None:
                value = float(self.metrics[entry.metric].compute()) if entry.on_epoch else None
            if value is not None:
                self.show(entry, "epoch", value)
                means[entry.named("epoch")] = value
        for entry in entries.values() if ends else ():
            if entry.metric is not None:
                self.metrics[entry.metric].reset()
            entry.metric, entry.epoch = None, (0.0, 0.0)
        return means


@contextmanager
def preserved_metrics(module: nn.Module) -> Iterator[None]:
    """Restore the torchmetrics of a module afterwards."""
    kinds, metrics = (Tensor, list, int, float, type(None)), [m for m in module.modules() if isinstance(m, Metric)]
    states = [{name: deepcopy(value) for name, value in vars(m).items() if isinstance(value, kinds)} for m in metrics]
    yield
    for metric, state in zip(metrics, states, strict=True):
        vars(metric).update(state)


def compute_over_ranks(metrics: Sequence[Metric]) -> None:
    """Compute metrics of their states on all ranks, in one message; each keeps its value until it is reset."""
    if metrics and dist.is_initialized():
        ranks = gather_values([states_of(metric) for metric in metrics], to_all=True)
        for metric, states in zip(metrics, zip(*ranks, strict=True), strict=True):
            compute_from(metric, states)
