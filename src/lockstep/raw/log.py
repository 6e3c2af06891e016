"""`self.log` of a module, over all ranks and samples."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import add
from typing import Any

from torch import Tensor, nn
from torch.distributed import is_initialized
from torchmetrics import Metric, MetricCollection

from lockstep.base.messages import all_gather_json, gather_values
from lockstep.base.private_api.torchmetrics import compute_from, last_forward, states_of


def added(numbers: Iterable[Any]) -> Any:
    """Return the sum, from the first number to the last; Python's `sum` rounds in another way since 3.12."""
    return reduce(add, numbers, 0)


def joined(how: str, pairs: Iterable[Sequence[float]]) -> tuple[float, float]:
    """Return the total and the weight of several; those of weight 0 do not count."""
    counted = [pair for pair in pairs if pair[1]]
    totals, join = [total for total, _ in counted], {"min": min, "max": max}.get(how, added)
    return (join(totals) if totals else 0.0), added(weight for _, weight in counted)


def value_of(how: str, pairs: Iterable[Sequence[float]]) -> float | None:
    total, weight = joined(how, pairs)
    return None if not weight else total / weight if how == "mean" else total


@dataclass
class Logged:
    """What is logged under one name in one stage: totals (of a mean, of values times weights) and weights.

    batch: of the current batch. shown: its value; over all ranks, if it was logged with `sync_dist` (`sync`).
    """

    name: str
    how: str
    on_step: bool
    on_epoch: bool
    metric: Any = None
    epoch: Sequence[float] = (0.0, 0.0)
    batch: Sequence[float] | None = None
    sync: bool = False
    shown: float = 0.0

    def named(self, kind: str) -> str:
        """Return the name of its values of a step or an epoch; if there are both, they get an ending."""
        name, separator, index = self.name.partition("/dataloader_idx_")
        return f"{name}_{kind}{separator}{index}" if self.on_step and self.on_epoch else self.name


class Log:
    """`self.log` of a module: means are weighted by samples, over the batches and the ranks of an epoch.

    samples: of this rank in the batch; None between batches. suffix: names the loader, if there are several.
    synced: names of which ranks need one value, to step a schedule.
    """

    samples: int | None = None
    stage, suffix = "train", ""

    def __init__(self, module: nn.Module, rank: int) -> None:
        self.module, self.rank = module, rank
        self.stages: dict[str, dict[str, Logged]] = {"train": {}, "val": {}, "test": {}}
        self.epoch_samples: dict[str, int] = {}
        self.synced: set[str] = set()
        for child in module.modules():
            if hasattr(child, "automatic_optimization"):
                object.__setattr__(child, "log", self.log)
                object.__setattr__(child, "log_dict", self.log_dict)

    def begin_batch(self, stage: str, samples: int, suffix: str = "") -> None:
        self.stage, self.suffix, self.samples = stage, suffix, samples
        self.epoch_samples[stage] += samples
        for entry in self.stages[stage].values():
            entry.batch = None

    def end_batch(self, stage: str) -> None:
        self.stage, self.suffix, self.samples = stage, "", None

    def log_dict(self, values: Any, *arguments: Any, **options: Any) -> None:
        is_collection = isinstance(values, MetricCollection)
        for name, value in values.items(keep_base=False, copy_state=False) if is_collection else values.items():
            self.log(name, value, *arguments, **options)

    def log(self, name: str, value: Any, *_: Any, reduce_fx: Any = "mean", **options: Any) -> None:
        in_batch, samples, get = self.samples is not None, self.samples or 0, options.get
        trains, on_step, on_epoch = self.stage == "train" and in_batch, get("on_step"), get("on_epoch")
        on_step = trains if on_step is None else on_step and in_batch
        on_epoch = not on_step or (not trains if on_epoch is None else on_epoch)
        name = name + self.suffix if get("add_dataloader_idx", True) else name
        how = str(getattr(reduce_fx, "__name__", reduce_fx)).lower().replace("avg", "mean")
        entry = self.stages[self.stage].setdefault(name, Logged(name, how, on_step, on_epoch))
        weight = float(self.epoch_samples.get(self.stage, 0) or 1)  # between batches: it is of the epoch
        if in_batch:
            weight = float(samples if get("batch_size") is None else options["batch_size"]) if samples else 0.0
        weight = 0.0 if get("rank_zero_only") and self.rank else weight
        if isinstance(value, Metric):
            entry.metric = value
            if not on_step or (last := last_forward(value)) is None:
                return
            value, weight = last.double().mean(), float(samples)
        number = float(value.detach() if isinstance(value, Tensor) else value)
        pair = (number * weight if how == "mean" else number, weight)
        if on_step:
            entry.batch, entry.shown = pair, number
            syncs = get("sync_dist", False) or not self.synced.isdisjoint((name, entry.named("step")))
            entry.sync = entry.metric is None and syncs
        if entry.on_epoch and entry.metric is None:
            entry.epoch = joined(how, [entry.epoch, pair])

    def of_batch(self) -> list[Logged]:
        """Return what the batch has logged for itself, over all ranks where it was logged with `sync_dist`."""
        logged = [entry for entry in self.stages[self.stage].values() if entry.batch is not None]
        if self.stage == "train" and (synced := sorted((e for e in logged if e.sync), key=lambda entry: entry.name)):
            ranks = all_gather_json([entry.batch for entry in synced])
            for entry, pairs in zip(synced, zip(*ranks, strict=True), strict=True):
                entry.shown = value_of(entry.how, pairs) or 0.0
        return logged

    def of_epoch(self, stage: str, ends: bool) -> list[tuple[Logged, float]]:
        """Return each entry of a stage with its value over all ranks; reset them if the stage `ends`."""
        metrics = {name: child for name, child in self.module.named_modules() if isinstance(child, Metric)}
        names, entries = {id(metric): name for name, metric in metrics.items()}, self.stages[stage]
        totals: dict[str, list[Any]] = {}
        mine = [vars(each) | {"metric": names.get(id(each.metric))} for each in entries.values()]
        for values in (values for of_rank in all_gather_json(mine) for values in of_rank):
            empty = Logged(**values | {"metric": None, "epoch": (0.0, 0.0), "batch": None})
            entry = entries.setdefault(empty.name, empty)  # a rank without samples has logged nothing
            entry.metric = entry.metric or metrics.get(values["metric"])
            totals.setdefault(entry.name, []).append(values["epoch"])
        results, in_order = [], [entries[name] for name in sorted(totals)]
        logged = [entry.metric for entry in in_order if entry.metric is not None and entry.on_epoch]
        for metric, count in product(logged, ("tp", "fp", "tn", "fn")):
            if isinstance(state := getattr(metric, count, None), Tensor):
                setattr(metric, count, state.double())  # which has them exactly; torchmetrics divides in float32
        if logged and is_initialized():
            ranks = gather_values([states_of(metric) for metric in logged], to_all=True)
            for metric, states in zip(logged, zip(*ranks, strict=True), strict=True):
                compute_from(metric, states)
        for entry in in_order:
            value = value_of(entry.how, totals[entry.name])
            if entry.metric is not None:
                value = entry.metric.compute() if entry.on_epoch else None
            results += [] if value is None else [(entry, float(value))]
        for entry in entries.values() if ends else ():
            if entry.metric is not None:
                entry.metric.reset()
            entry.metric, entry.epoch = None, (0.0, 0.0)
        return results


@contextmanager
def preserved_metrics(module: nn.Module) -> Iterator[None]:
    """Restore the torchmetrics of a module afterwards."""
    kinds, states = (Tensor, list, int, bool, float, type(None)), []
    metrics = [each for each in module.modules() if isinstance(each, Metric)]
    for metric in metrics:
        states.append({name: deepcopy(value) for name, value in vars(metric).items() if isinstance(value, kinds)})
    yield
    for metric, state in zip(metrics, states, strict=True):
        vars(metric).update(state)
