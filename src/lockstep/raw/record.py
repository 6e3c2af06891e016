"""What is logged by `self.log`, over all ranks and samples; and what a run leaves: record.jsonl, last.ckpt, results."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from lockstep.errors import NotFinite
from lockstep.files import atomic_write, finite
from lockstep.parallel.messages import all_gather_json
from lockstep.private_api.torch import BATCHNORM, DROPOUT
from lockstep.private_api.torchmetrics import last_forward, widen_metric
from lockstep.raw.data import Share
from lockstep.raw.step import rate_of
from lockstep.safe_loading import plain

LOSSES = ("val_loss", "val/loss", "valid_loss", "validation_loss", "train/loss")
MORE_IS_BETTER = re.compile(r"(acc|accuracy|f1|auc|auroc|precision|recall)$")


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
    stage, suffix, synced = "train", "", frozenset[str]()

    def __init__(self, module: nn.Module, rank: int) -> None:
        self.module, self.rank = module, rank
        self.stages: dict[str, dict[str, Logged]] = {"train": {}, "val": {}, "test": {}}
        self.epoch_samples: dict[str, int] = {}
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
            entry.sync = entry.metric is None and (get("sync_dist", False) or name in self.synced)
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
        results = []
        for entry in (entries[name] for name in sorted(totals)):
            value = value_of(entry.how, totals[entry.name])
            if entry.metric is not None:
                for count in ("tp", "fp", "tn", "fn"):  # float64 has them exactly; torchmetrics divides in float32
                    if isinstance(state := getattr(entry.metric, count, None), Tensor):
                        setattr(entry.metric, count, state.double())
                value = entry.metric.compute() if entry.on_epoch else None
            results += [] if value is None else [(entry, float(value))]
        for entry in entries.values() if ends else ():
            if entry.metric is not None:
                entry.metric.reset()
            entry.metric, entry.epoch = None, (0.0, 0.0)
        return results


class Record:
    """What a run measures: results over all ranks, and record.jsonl. Each rank collects its steps of an epoch.

    epoch, batches, steps: complete epochs, batches of the next one, optimizer steps in all. lines: the steps of this
    epoch. window: the batches of the current step. values, epoch_values: the latest results, and those of the epoch.
    """

    epoch = batches = steps = samples = 0
    logs_loss = False

    def __init__(self, rank: Any) -> None:
        self.rank, self.log, self.path = rank, rank.log, Path(rank.job.world.folder) / "record.jsonl"
        self.values: dict[str, float] = {}
        self.epoch_values: dict[str, float] = {}
        self.best: dict[str, Any] = {}
        self.lines: list[dict[str, Any]] = []
        self.window: list[dict[str, Any]] = []
        modules = [*rank.module.modules()]
        rates = [each.p for each in modules if isinstance(each, DROPOUT)]
        rates += [each.dropout for each in modules if isinstance(each, nn.RNNBase | nn.MultiheadAttention)]
        self.metadata = {**rank.job.metadata, "dropout_rng": "per_rank" if any(rates) else "none"}
        norms = [each for each in modules if isinstance(each, BATCHNORM) and not rank.config.sync_batchnorm]
        differ = rank.world > 1 and any(each.track_running_stats for each in norms)
        if rank.rank == 0:
            self.path.write_text("")
        about = {"per_rank_buffers": differ, "batchnorm": "per_rank" if norms else "none"}
        self.write([{"run": {**self.metadata, **about}}])

    def write(self, lines: Iterable[Mapping[str, Mapping[str, Any]]]) -> None:
        if self.rank.rank == 0:
            with self.path.open("a") as file:
                file.writelines(json.dumps({kind: finite(line[kind]) for kind in line}) + "\n" for line in lines)

    def begin_stage(self, stage: str) -> None:
        self.log.end_batch(stage)
        self.log.epoch_samples[stage] = 0
        for metric in self.rank.module.modules() if self.rank.dtype == torch.float64 else ():
            if isinstance(metric, Metric):
                widen_metric(metric)

    def begin_batch(self, share: Share) -> None:
        self.rank.updates, self.rank.loss, self.rank.weight = [], None, share.count
        self.log.begin_batch("train", share.count)

    def show_batch(self) -> None:
        """Show what the batch has logged to whoever reads `trainer.callback_metrics`."""
        for entry in self.log.of_batch():
            value, trainer = torch.tensor(entry.shown, dtype=torch.float64), self.rank.trainer
            trainer.logged_metrics[entry.named("step")] = value
            if self.log.stage == "train":
                trainer.callback_metrics |= {entry.name: value, entry.named("step"): value}

    def end_batch(self, share: Share, is_step: bool) -> None:
        """Record a batch, and the optimizer step that ends with it, after its last hook."""
        self.show_batch()
        rank, log, weight, config = self.rank, self.log, self.rank.weight, self.rank.config
        loss = None if rank.loss is None else rank.loss.item()
        self.require_finite(f"the loss of step {self.steps + 1}", loss)
        if loss is not None and (self.logs_loss or "train/loss" not in log.stages["train"]):
            self.logs_loss = True
            log.log("train/loss", loss, on_step=False, on_epoch=True, batch_size=weight)
        loss_sum = 0.0 if loss is None or not weight else loss if config.loss_reduction == "sum" else loss * weight
        ids = hash_ids(share.ids, self.batches * rank.loaders("train")[0].size + rank.rank, rank.world)
        self.window.append({"loss_sum": loss_sum, "samples": share.count, "weight": weight, "ids": ids})
        self.batches, self.samples = self.batches + 1, self.samples + share.count
        if is_step:
            line: dict[str, Any] = {name: added(batch[name] for batch in self.window) for name in self.window[0]}
            line |= {"logged": {}, "metrics": {}}
            for entry in (entry for entry in log.stages["train"].values() if entry.batch is not None):
                line["logged" if entry.metric is None else "metrics"][entry.named("step")] = (*entry.batch, entry.how)
            updates = rank.updates if not rank.module.automatic_optimization else rank.updates[-1:]
            line["lr"] = updates[0][0] if updates else rate_of(rank.trainer.optimizers[0])
            squares = added(norm * norm for _, norms in updates for norm in norms)
            line["grad_norm"] = torch.tensor(squares, dtype=torch.float64).sqrt().item()
            self.lines.append(line)
            self.steps, self.window = self.steps + 1, []
        log.end_batch("train")

    def require_finite(self, name: str, loss: float | None) -> None:
        if self.rank.config.detect_nan and not math.isfinite(loss or 0.0):
            raise NotFinite(f"{name} is {loss}; write a smaller optimizer.lr, or detect_nan=false to train on.")

    def flush(self) -> None:
        """Write the steps of the epoch up to now, over all ranks."""
        first = self.steps - len(self.lines) + 1
        for number, ranks in enumerate(zip(*all_gather_json(self.lines), strict=True), start=first):
            self.write([{"step": {"epoch": self.epoch + 1, "step": number, **step_line(ranks)}}])
        self.lines = []

    def end_stage(self, stage: str, ends: bool) -> None:
        """Reduce what a stage has logged over all ranks: before its last hooks, and again at its end."""
        trainer, results = self.rank.trainer, self.log.of_epoch(stage, ends)
        for entry, value in results if not trainer.sanity_checking else ():
            name, tensor = entry.named("epoch"), torch.tensor(value, dtype=torch.float64)
            trainer.logged_metrics[name] = tensor
            trainer.callback_metrics |= {entry.name: tensor, name: tensor}
            self.values |= {name: value} if ends else {}
            self.epoch_values |= {name: value} if ends and stage != "test" else {}

    def end_validation(self, **place: int) -> None:
        """Record a validation; `place`: after which step and batch, if it is within an epoch."""
        self.flush()
        if self.epoch_values:
            self.write([{"validation": {"epoch": self.epoch + 1, **place, **self.epoch_values}}])
        self.require_finite(f"the validation loss after epoch {self.epoch + 1}", self.epoch_values.get("val/loss"))
        if place:
            self.update_best(self.epoch_values)
            self.epoch_values = {}

    def end_epoch(self, validated: bool) -> None:
        self.end_validation()
        config, monitor = self.rank.config, self.rank.config.checkpoint.monitor or ""
        validates = self.rank.loaders("val") and config.trainer.check_val_every_n_epoch <= config.max_epochs
        if validated or not validates or monitor in self.epoch_values or monitor.startswith("train/"):
            self.update_best(self.values)
        self.epoch, self.batches = self.epoch + 1, 0
        if self.rank.rank == 0:
            shown = "  ".join(f"{name} {value:.4f}" for name, value in sorted(self.epoch_values.items()))
            print(f"epoch {self.epoch}/{config.max_epochs}  {shown}", flush=True)
        self.epoch_values = {}

    def update_best(self, values: Mapping[str, float]) -> None:
        """Note the best epoch by the value that is monitored, in float32; the first of equals is the best."""
        monitor, mode = self.rank.config.checkpoint.monitor, self.rank.config.checkpoint.mode
        candidates = (monitor,) if monitor else (getattr(self.rank.module, "monitor", None), *LOSSES)
        name = next((each for each in candidates if each in self.values), None)
        if name in values:
            mode = mode or ("max" if MORE_IS_BETTER.search(name.lower()) else "min")
            value, sign = torch.tensor(values[name], dtype=torch.float32).item(), 1 if mode == "min" else -1
            badness = math.inf if math.isnan(value) else sign * value
            if not self.best or badness < sign * self.best["best"]:
                epoch = self.epoch + 1
                self.best = {"monitor": name, "mode": mode, "best": sign * badness, "best_epoch": epoch}

    @property
    def epochs_begun(self) -> int:
        return self.epoch + bool(self.batches)

    def end(self) -> None:
        """Write the digests of the final weights, and last.ckpt."""
        rank, state = self.rank, self.rank.module.state_dict()
        self.flush()
        tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        self.write([{"tensor": {"name": name, "digest": digest([tensors[name]])}} for name in tensors])
        self.digest = digest(tensors.values())
        position = {"epochs": self.epoch, "batch": self.batches, "steps": self.steps}
        content = {"plan": rank.job.plan, "position": position, "ended": rank.trainer.should_stop}
        checkpoint = {"epoch": self.epochs_begun - 1, "global_step": rank.trainer.global_step, "state_dict": state}
        states = [each.state_dict() if each.param_groups else {} for each in rank.trainer.optimizers]
        schedules = [each.scheduler.state_dict() for each in rank.trainer.lr_scheduler_configs]
        checkpoint |= {"optimizer_states": states, "lr_schedulers": schedules, "lockstep": content}
        rank.module.on_save_checkpoint(checkpoint)
        if rank.rank == 0:
            path = self.path.with_name("checkpoints") / "last.ckpt"
            path.parent.mkdir(exist_ok=True)
            with atomic_write(path) as temporary:
                torch.save(plain(checkpoint), temporary)

    def results(self) -> dict[str, Any]:
        """Return the content of metrics.json."""
        seconds, parameters = self.rank.seconds, sum(each.numel() for each in self.rank.module.parameters())
        metrics = {**self.metadata, "parameters": parameters, "epochs": self.epochs_begun, "steps": self.steps}
        speed = self.samples * self.rank.world / seconds if seconds else 0.0
        metrics |= {"train_seconds": seconds, "samples_per_second": speed}
        return {**metrics, **self.values, **metrics, **self.best, "digest": self.digest}


def step_line(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of a step over all ranks; `loss_sum` is the mean over what counts, times the samples."""
    loss, samples, weight, ids = (
        added(each[key] for each in ranks) for key in ("loss_sum", "samples", "weight", "ids")
    )
    norms = [each["grad_norm"] for each in ranks]
    line: dict[str, Any] = {"samples": samples, "ids": f"{ids % 2**64:016x}", "lr": ranks[0]["lr"]}
    line["loss_sum"] = loss if weight in (samples, 0) else loss / weight * samples
    line |= {"grad_norm": norms[0], "grad_norm_spread": max(abs(norm - norms[0]) for norm in norms)}
    for kind in ("logged", "metrics"):
        values: dict[str, float] = {}
        for name in sorted({name for each in ranks for name in each[kind]}):
            logged = [each[kind][name] for each in ranks if name in each[kind]]
            value = value_of(logged[0][2], [(total, weight) for total, weight, _ in logged])
            values |= {} if value is None else {name: value}
        line |= {kind: values} if values else {}
    return line


def hash_ids(ids: Tensor, first: int, step: int) -> int:
    """Return the sum of a hash of each (id, its position in the order of the epoch), modulo 2^64.

    The positions are first, first + step, … The hash is SplitMix64's, of id · (2^64 over the golden ratio) + position.
    """
    position = np.arange(first, first + step * len(ids), step, dtype=np.uint64)[: len(ids)]
    mixed = ids.numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + position
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))


def digest(tensors: Iterable[Tensor]) -> str:
    """Return the SHA-256 of tensors, each in logical order."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


@contextmanager
def preserved_metrics(module: nn.Module) -> Iterator[None]:
    """Restore the torchmetrics of a module afterwards."""
    kinds, metrics = (
        (Tensor, list, int, bool, float, type(None)),
        [m for m in module.modules() if isinstance(m, Metric)],
    )
    states = [
        {name: deepcopy(value) for name, value in vars(each).items() if isinstance(value, kinds)} for each in metrics
    ]
    yield
    for metric, state in zip(metrics, states, strict=True):
        vars(metric).update(state)
