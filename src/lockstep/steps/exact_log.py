"""What a module logs by `self.log`: Lightning's rules, but each value of an epoch is over all ranks and exact.

A mean is weighed by samples, over batches and ranks; a metric of torchmetrics is computed over all ranks, and reset.
Values of a single step are this rank's own, as Lightning has them; the record gets their mean over ranks.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from lockstep.parallel.messages import all_gather_bytes
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.private_api.torchmetrics import is_collection, is_metric, last_forward
from lockstep.steps.logged_value import JOIN, StepValue, Value, reduced, reduction_of, single_number
from lockstep.sums.running import Scalar, to_scalar

SUM, MIN, MAX = dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX


@dataclass(frozen=True)
class Epoch:
    """The values of an epoch by name: all, those for loggers, for the progress bar; and what callbacks may monitor."""

    values: Mapping[str, float]
    logger: Mapping[str, float]
    prog_bar: Mapping[str, float]
    monitored: Mapping[str, float]


class ExactLog:
    """One for each rank. Engines say where a run stands; `log` and `log_dict` are the module's."""

    def __init__(self, module: nn.Module, rank: int, device: torch.device, active: bool = True) -> None:
        """`active`: whether anything may be logged, by a module of the user's or by callbacks."""
        self.module, self.rank, self.device, self.active = module, rank, device, active
        self.stages: dict[str, dict[str, Value]] = {}
        self.stage, self.samples, self.suffix = "", 0, ""
        self.seen: dict[str, int] = {}
        self.in_batch = False
        self.virtual_rank = 0
        self.step_values: dict[str, StepValue] = {}
        self.always_synced: set[str] = set()

    # where a run stands

    def begin_epoch(self, stage: str) -> None:
        self.stage, self.samples, self.suffix, self.in_batch = stage, 0, "", False
        self.seen[stage] = 0

    def enter(self, stage: str) -> None:
        """Return to a stage outside of its batches."""
        self.stage, self.in_batch = stage, False

    def begin_batch(self, samples: int, loader: int | None = None) -> None:
        """`loader`: which of several in an evaluation."""
        self.samples, self.in_batch = samples, True
        self.seen[self.stage] = self.seen.get(self.stage, 0) + samples
        self.suffix = "" if loader is None else f"/dataloader_idx_{loader}"
        self.step_values, self.virtual_rank = {}, 0

    def end_batch(self) -> None:
        self.in_batch, self.suffix = False, ""

    # what the module calls

    def log_dict(self, dictionary: Any, *arguments: Any, **options: Any) -> None:
        """Log each value of a dictionary or MetricCollection, as LightningModule.log_dict."""
        items = dictionary.items(keep_base=False, copy_state=False) if is_collection(dictionary) else dictionary.items()
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
        batch_size: int | None = None,
        metric_attribute: str | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        """Log a value, as LightningModule.log. Values of an epoch are over all ranks, with `sync_dist` and without.

        Raises:
            ValueError: the value is no single number and no metric.
        """
        in_training = self.stage == "train" and self.in_batch
        step = in_training if on_step is None else on_step and self.in_batch
        epoch = (not in_training) if on_epoch is None else on_epoch
        full = f"{name}{self.suffix}" if add_dataloader_idx else name
        entry = self._entry(full, reduction_of(name, reduce_fx), step, epoch or not step, prog_bar, logger is not False)
        if is_metric(value):
            entry.metric = value
            if step and (forward := last_forward(value)) is not None:
                self._add_step(full, entry, to_scalar(forward.detach().double().mean()), float(self.samples), False)
            return
        number = value if type(value) is float else to_scalar(single_number(name, value))
        if self.in_batch:
            weight = float(self.samples if batch_size is None else batch_size)
        else:  # a value of the epoch stands for the samples of this rank in it
            weight = float(self.seen.get(self.stage, 0)) or 1.0
        if (self.in_batch and self.samples == 0) or (rank_zero_only and self.rank):
            weight = 0.0
        if step:
            self._add_step(full, entry, number, weight, sync_dist)
        if entry.on_epoch:
            entry.pending.append((number, weight))

    def _add_step(self, name: str, entry: Value, value: Scalar, weight: float, sync_dist: bool) -> None:
        sync_dist = sync_dist or not self.always_synced.isdisjoint((name, entry.step_name))
        self.step_values.setdefault(name, StepValue(entry, sync_dist)).of_ranks[self.virtual_rank] = value, weight

    def _entry(self, name: str, reduction: str, step: bool, epoch: bool, prog_bar: bool, logger: bool) -> Value:
        entries = self.stages.setdefault(self.stage, {})
        if name not in entries:
            entries[name] = Value(name, reduction, step, epoch, prog_bar, logger)
            entries[name].reset()
        return entries[name]

    # what comes of it

    def step(self) -> dict[str, float]:
        """Return the values of the batch for loggers: this rank's, or those of all ranks with `sync_dist`."""
        return {own.entry.step_name: own.shown for own in self.step_values.values() if own.entry.logger}

    def bar(self) -> dict[str, float]:
        return {own.entry.step_name: own.shown for own in self.step_values.values() if own.entry.prog_bar}

    def monitored(self) -> dict[str, float]:
        """Return the values of a training batch that callbacks may monitor."""
        if self.stage != "train":
            return {}
        return {key: own.shown for name, own in self.step_values.items() for key in (name, own.entry.step_name)}

    def of_record(self) -> dict[str, dict[str, tuple[Scalar, float, str]]]:
        """Return total, weight and reduction of each name in the batch: of plain numbers, and of metrics as objects.

        The record has them over ranks. The mean of a metric need not be the metric of the whole batch.
        """
        kinds: dict[str, dict[str, tuple[Scalar, float, str]]] = {"logged": {}, "metrics": {}}
        for value in self.step_values.values():
            kinds["logged" if value.entry.metric is None else "metrics"][value.entry.step_name] = value.joined
        return kinds

    def sync_steps(self) -> None:
        """Reduce the values of the batch that were logged with `sync_dist`. To be called by every rank."""
        found = [own for name, own in sorted(self.step_values.items()) if own.sync_dist]
        if dist.is_initialized() or any(len(own.of_ranks) > 1 for own in found):
            totals = [[float(total), weight] for total, weight, _ in (own.joined for own in found)]
            for own, value in zip(found, self._over_ranks([own.entry for own in found], totals), strict=True):
                own.synced = value

    def end_epoch(self, stage: str) -> Epoch:
        """Return the values of a stage over all ranks, and reset them. To be called by every rank."""
        if not self.active:
            return Epoch({}, {}, {}, {})
        entries = self._on_all_ranks(stage)
        for entry in entries:
            entry.settle()
        plain = [entry for entry in entries if entry.metric is None and entry.on_epoch]
        totals = [[own.total, own.weight] for own in plain]
        values = dict(zip([own.name for own in plain], self._over_ranks(plain, totals), strict=True))
        for entry in entries:
            if entry.metric is not None and entry.on_epoch:
                values[entry.name] = float(entry.metric.compute())
        for entry in entries:
            entry.reset()
        found = [(entry, value) for entry in entries if (value := values.get(entry.name)) is not None]
        return Epoch(
            {entry.epoch_name: value for entry, value in found},
            {entry.epoch_name: value for entry, value in found if entry.logger},
            {entry.epoch_name: value for entry, value in found if entry.prog_bar},
            {key: value for entry, value in found for key in (entry.name, entry.epoch_name)},
        )

    def _on_all_ranks(self, stage: str) -> list[Value]:
        """Return the stage's entries in one order on every rank: a rank without samples has logged nothing."""
        entries = self.stages.setdefault(stage, {})
        if not dist.is_initialized():
            return [*entries.values()]
        names = {id(metric): name for name, metric in metric_modules(self.module)}
        own = [
            [entry.options, None if entry.metric is None else names.get(id(entry.metric))] for entry in entries.values()
        ]
        for part in all_gather_bytes(json.dumps(own).encode()):
            for options, metric in json.loads(part):
                name = options[0]
                if name not in entries:
                    entries[name] = Value(*options)
                    entries[name].metric = None if metric is None else self.module.get_submodule(metric)
                    entries[name].reset()
        return [entries[name] for name in sorted(entries)]

    def _over_ranks(self, entries: Sequence[Value], own_totals: Sequence[Sequence[float]]) -> list[float | None]:
        """Reduce the total and the weight of each entry: one message for all sums, one for extremes."""
        totals = torch.tensor(own_totals, dtype=torch.float64).reshape(-1, 2)
        if dist.is_initialized() and entries:
            for kinds, operation in ((("mean", "sum"), SUM), (("min",), MIN), (("max",), MAX)):
                rows = torch.tensor([own.reduction in kinds for own in entries])
                if rows.any():
                    part = totals[rows].to(self.device)
                    dist.all_reduce(part, op=operation)
                    totals[rows] = part.cpu()
        return [reduced(own.reduction, *row) for own, row in zip(entries, totals.tolist(), strict=True)]

    # checkpoints within an epoch

    def state(self) -> dict[str, list[Any]]:
        """Return options and sums of each value of training by name, as plain values."""
        kept = {}
        for name, entry in self.stages.get("train", {}).items():
            entry.settle()
            kept[name] = [*entry.options, entry.total, entry.weight]
        return kept

    def restore(self, state: Mapping[str, Sequence[Any]]) -> None:
        """Add what `state` has returned, on top of what that of another rank has added."""
        for name, (*options, total, weight) in state.items():
            entry = self.stages.setdefault("train", {}).setdefault(name, Value(*options))
            if entry.weight:
                total = JOIN.get(entry.reduction, sum)((entry.total, total))  # of a mean too it is a sum
                weight += entry.weight
            entry.total, entry.weight = total, weight


def attach_log(module: nn.Module, log: ExactLog | None) -> None:
    """Replace `self.log` and `self.log_dict` of a LightningModule and of those within it; by no-ops if log is None."""
    for part in module.modules():
        if hasattr(part, "automatic_optimization") and hasattr(part, "log_dict"):
            object.__setattr__(part, "log", _nothing if log is None else log.log)
            object.__setattr__(part, "log_dict", _nothing if log is None else log.log_dict)


def _nothing(*_: Any, **options: Any) -> None:
    """Log nothing: `self.log` in a run with barebones, as in Lightning."""


def metric_modules(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Return the torchmetrics objects of a module with their names."""
    return ((name, own) for name, own in module.named_modules() if is_metric(own))


def widen_metrics(plan: Plan, module: nn.Module) -> None:
    """Convert torchmetrics states to float64 if the plan computes in it (`Metric.to` ignores dtypes)."""
    if dtype_of(plan) == torch.float64:
        for _, metric in metric_modules(module):
            metric.set_dtype(torch.float64)
