"""The values that a module logs by `self.log`, by Lightning's rules, but reduced exactly over all ranks and samples.

The mean of an epoch is weighted by samples, over batches and ranks; a torchmetrics object is computed over all ranks.
Values of a single step are this rank's, as in Lightning; the record has their mean over ranks.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import torch.distributed as dist
from lightning.pytorch import LightningModule
from torch import nn
from torchmetrics import Metric, MetricCollection

from lockstep.base.messages import all_gather_json
from lockstep.base.private_api.torchmetrics import last_forward, widen_counts
from lockstep.engine.logged_values import LOADER, Value, compute_together, metric_objects, reduction_of
from lockstep.runs.record.step_lines import Scalar, reduced, to_scalar
from lockstep.strategies.parallel.tensor_layout import full_tensor


class ExactLog:
    """The log of one rank. Engines call the methods that say where a run stands; `log` and `log_dict` are the module's.

    rank, reports: which samples the rank has, and whether it counts them; otherwise its values have no weight.
    always_synced: names of values of a step that are reduced even without `sync_dist`.
    is_fresh: whether the batch has logged values since they were last reduced.
    """

    def __init__(self, module: nn.Module, rank: int, reports: bool = True) -> None:
        self.module, self.rank, self.reports = module, rank, reports
        self.stages: dict[str, dict[str, Value]] = {}
        self.stage, self.samples, self.suffix = "", 0, ""
        self.epoch_samples: dict[str, int] = {}
        self.in_batch = False
        self.virtual_rank = 0
        self.is_fresh = False
        self.step_values: dict[str, Value] = {}
        self.always_synced: set[str] = set()

    # where a run stands

    def begin_epoch(self, stage: str) -> None:
        self.enter(stage)
        self.samples = self.epoch_samples[stage] = 0

    def enter(self, stage: str) -> None:
        """Begin or go on with a stage, between two batches."""
        self.stage, self.suffix, self.in_batch = stage, "", False

    def begin_batch(self, stage: str, samples: int, loader: int | None = None) -> None:
        """Begin a batch of so many samples; `loader`: the index of its loader in an evaluation with several."""
        self.stage, self.samples, self.in_batch = stage, samples, True
        self.epoch_samples[stage] = self.epoch_samples.get(stage, 0) + samples
        self.suffix = "" if loader is None else f"{LOADER}{loader}"
        for value in self.step_values.values():
            value.by_rank, value.synced = {}, None
        self.step_values, self.virtual_rank, self.is_fresh = {}, 0, False

    # called by the module

    def log_dict(self, dictionary: Any, *arguments: Any, **options: Any) -> None:
        """Log each value of a dictionary or MetricCollection, as LightningModule.log_dict."""
        options_of_items = {"keep_base": False, "copy_state": False} if isinstance(dictionary, MetricCollection) else {}
        items = dictionary.items(**options_of_items)
        for name, value in items:
            self.log(name, value, *arguments, **options)

    def log(
        self,
        name: str,
        value: Any,
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: Any = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: float | None = None,
        metric_attribute: str | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        """Log a value, as LightningModule.log. Values of an epoch are over all ranks, with `sync_dist` and without."""
        in_training = self.stage == "train" and self.in_batch
        on_step = in_training if on_step is None else on_step and self.in_batch
        on_epoch = not on_step or (not in_training if on_epoch is None else on_epoch)
        name = f"{name}{self.suffix}" if add_dataloader_idx else name
        entries = self.stages.setdefault(self.stage, {})
        if (entry := entries.get(name)) is None:
            options = (on_step, on_epoch, prog_bar, logger is not False)
            entry = entries[name] = Value(name, reduction_of(name, reduce_fx), *options)
        if isinstance(value, Metric):
            entry.metric = value
            if on_step and (forward := last_forward(value)) is not None:
                self._add_step(entry, to_scalar(forward.detach().double().mean()), float(self.samples), False)
            return
        value = full_tensor(value)
        number = to_scalar(value.reshape(()) if getattr(value, "is_cuda", False) else value)
        if self.in_batch:
            weight = float(self.samples if batch_size is None else batch_size) if self.samples else 0.0
        else:  # a value of the epoch stands for the samples of this rank in it
            weight = float(self.epoch_samples.get(self.stage, 0)) or 1.0
        if not self.reports or (rank_zero_only and self.rank):
            weight = 0.0
        if on_step:
            self._add_step(entry, number, weight, sync_dist)
        if entry.on_epoch:
            entry.pending.append((number, weight))

    def _add_step(self, entry: Value, value: Scalar, weight: float, sync_dist: bool) -> None:
        entry.sync_dist = sync_dist or not self.always_synced.isdisjoint((entry.name, entry.step_name))
        entry.by_rank[self.virtual_rank], entry.synced = (value, weight), None
        self.step_values[entry.name], self.is_fresh = entry, True

    # results of a batch

    def step(self, target: Literal["logger", "prog_bar"]) -> dict[str, float]:
        """Return the values of the batch for a target: this rank's, or those of all ranks with `sync_dist`."""
        return {value.step_name: value.shown for value in self.step_values.values() if getattr(value, target)}

    def monitored(self) -> dict[str, float]:
        """Return the values of a training batch that callbacks may monitor."""
        return {name: value.shown for value in self.step_values.values() for name in (value.name, value.step_name)}

    def record_values(self) -> dict[str, dict[str, tuple[Scalar, float, str]]]:
        """Return total, weight and reduction of each name in the batch: of plain numbers, and of torchmetrics."""
        record: dict[str, dict[str, tuple[Scalar, float, str]]] = {}
        for value in self.step_values.values():
            kind = "logged" if value.metric is None else "metrics"
            record.setdefault(kind, {})[value.step_name] = value.joined
        return record

    def sync_steps(self) -> None:
        """Reduce the values of the batch that were logged with `sync_dist`. To be called by every rank."""
        self.is_fresh = False
        values = [value for value in self.step_values.values() if value.sync_dist and value.synced is None]
        values.sort(key=lambda value: value.name)
        if values and (dist.is_initialized() or any(len(value.by_rank) > 1 for value in values)):
            ranks = all_gather_json([[float(value.joined[0]), value.joined[1]] for value in values])
            for value, totals in zip(values, zip(*ranks, strict=True), strict=True):
                value.synced = reduced(value.reduction, totals)

    # results of an epoch

    def end_epoch(self, stage: str) -> list[tuple[Value, float]]:
        """Return entries of a stage with their values over all ranks, and reset them. To be called by every rank."""
        logged = self.epoch(stage)
        for entry in self.stages.get(stage, {}).values():
            entry.reset()
        return logged

    def epoch(self, stage: str) -> list[tuple[Value, float]]:
        """Return entries of a stage with their values until now, over all ranks. To be called by every rank."""
        entries = self._totals(self.stages.setdefault(stage, {}))
        return [(entry, value) for entry, totals in entries if (value := entry.epoch_value(totals)) is not None]

    def _totals(self, entries: dict[str, Value]) -> list[tuple[Value, list[Any]]]:
        """Return each entry with its totals and weights of all ranks; in the same order on every rank.

        A rank without samples has logged nothing, and gets the entries of the others.
        """
        metrics = metric_objects(self.module)
        names = {id(metric): name for name, metric in metrics.items()}
        for metric in metrics.values():
            widen_counts(metric)
        for entry in entries.values():
            entry.flush()
        rows = [[entry.options, names.get(id(entry.metric)), entry.total, entry.weight] for entry in entries.values()]
        totals: dict[str, list[Any]] = {}
        for options, metric, *total in chain.from_iterable(all_gather_json(rows)):
            name = options[0]
            entry = entries.setdefault(name, Value(*options))
            entry.metric = entry.metric or metrics.get(metric)
            totals.setdefault(name, []).append(total)
        logged = {id(entries[name].metric) for name in totals if entries[name].on_epoch}
        compute_together({name: metric for name, metric in metrics.items() if id(metric) in logged})
        return [(entries[name], totals[name]) for name in sorted(totals)]

    # checkpoints within an epoch

    def state(self) -> dict[str, list[Any]]:
        """Return options, total and weight of each value of training by name, as plain values."""
        entries = self.stages.get("train", {})
        for entry in entries.values():
            entry.flush()
        return {name: [*entry.options, entry.total, entry.weight] for name, entry in entries.items()}

    def restore(self, state: Mapping[str, Sequence[Any]]) -> None:
        """Add a return value of `state` to what was restored from another rank."""
        entries = self.stages.setdefault("train", {})
        for name, (*options, total, weight) in state.items():
            entries.setdefault(name, Value(*options)).add(total, weight)


def attach_log(module: nn.Module, log: ExactLog) -> None:
    """Replace `self.log` and `self.log_dict` of a LightningModule and its children."""
    for child in module.modules():
        if isinstance(child, LightningModule):
            for name in ("log", "log_dict"):
                object.__setattr__(child, name, getattr(log, name))
