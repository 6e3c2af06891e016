"""What is logged by `self.log`, over all ranks and samples; and what a run leaves: record.jsonl, last.ckpt, results."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

JOIN: dict[str, Callable[[Any], Any]] = {"mean": sum, "sum": sum, "min": min, "max": max}
LOSSES = ("val_loss", "val/loss", "valid_loss", "validation_loss", "train/loss")
BETTER_ABOVE = re.compile(r"(acc|accuracy|f1|auc|auroc|precision|recall)$")


def added(numbers: Iterable[Any]) -> Any:
    """Return the sum, from the first number to the last; Python's `sum` rounds in another way since 3.12."""
    return reduce(add, numbers, 0)


def joined(how: str, pairs: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the total and the weight of several; those of weight 0 do not count."""
    totals = [total for total, weight in pairs if weight]
    return (JOIN[how](totals) if totals else 0.0), sum(weight for _, weight in pairs)


def value_of(how: str, pairs: Sequence[Sequence[float]]) -> float | None:
    total, weight = joined(how, pairs)
    return None if not weight else total / weight if how == "mean" else total


@dataclass
class Logged:
    """What is logged under one name in one stage: totals of values times weights, and the weights.

    batch: of the current batch. shown: of the current batch over all ranks, if it was logged with `sync_dist`.
    """

    name: str
    how: str
    on_step: bool
    on_epoch: bool
    epoch: Sequence[float] = (0.0, 0.0)
    batch: tuple[float, float] | None = None
    sync: bool = False
    shown: float = 0.0
    metric: Any = None

    def forked(self, kind: str) -> str:
        """Return the name of its values of a step or an epoch; if there are both, they get an ending."""
        name, separator, index = self.name.partition("/dataloader_idx_")
        return f"{name}_{kind}{separator}{index}" if self.on_step and self.on_epoch else self.name


class Log:
    """`self.log` of a module: means are weighted by samples, over the batches and the ranks of an epoch.

    samples: of this rank in the batch; None between batches. suffix: names the loader, if there are several.
    """

    samples: int | None = None
    stage, suffix = "train", ""

    def __init__(self, module: nn.Module, rank: int, keeps: bool) -> None:
        self.module, self.rank = module, rank
        self.stages: dict[str, dict[str, Logged]] = {}
        self.epoch_samples: dict[str, int] = {}
        self.synced: set[str] = set()  # names of which ranks need one value, to step a schedule
        for child in module.modules():
            if keeps and hasattr(child, "automatic_optimization"):
                object.__setattr__(child, "log", self.log)
                object.__setattr__(child, "log_dict", self.log_dict)

    def begin_stage(self, stage: str) -> None:
        self.end_batch(stage)
        self.epoch_samples[stage] = 0

    def begin_batch(self, stage: str, samples: int, suffix: str = "") -> None:
        self.stage, self.suffix, self.samples = stage, suffix, samples
        self.epoch_samples[stage] += samples
        for entry in self.entries.values():
            entry.batch = None

    def end_batch(self, stage: str) -> None:
        self.stage, self.suffix, self.samples = stage, "", None

    @property
    def entries(self) -> dict[str, Logged]:
        return self.stages.setdefault(self.stage, {})

    def log_dict(self, values: Any, *arguments: Any, **options: Any) -> None:
        is_collection = isinstance(values, MetricCollection)
        for name, value in values.items(keep_base=False, copy_state=False) if is_collection else values.items():
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
        in_batch, samples = self.samples is not None, self.samples or 0
        trains = self.stage == "train" and in_batch
        on_step = trains if on_step is None else on_step and in_batch
        on_epoch = not on_step or (not trains if on_epoch is None else on_epoch)
        name = name + self.suffix if add_dataloader_idx else name
        how = str(getattr(reduce_fx, "__name__", reduce_fx)).lower().replace("avg", "mean")
        entry = self.entries.setdefault(name, Logged(name, how, on_step, on_epoch))
        weight = float(self.epoch_samples.get(self.stage, 0) or 1)  # between batches: it is of the epoch
        if in_batch:
            weight = float(samples if batch_size is None else batch_size) if samples else 0.0
        weight = 0.0 if rank_zero_only and self.rank else weight
        if isinstance(value, Metric):
            entry.metric = value
            value = last_forward(value)
            if not on_step or value is None:
                return
            value, weight = value.double().mean(), float(samples)
        number = float(value.detach() if isinstance(value, Tensor) else value)
        pair = (number * weight if how == "mean" else number, weight)
        if on_step:
            entry.batch, entry.shown = pair, number
            entry.sync = entry.metric is None and (sync_dist or name in self.synced)
        if entry.on_epoch and entry.metric is None:
            entry.epoch = joined(how, [entry.epoch, pair])

    def of_batch(self) -> list[Logged]:
        """Return what the batch has logged for itself, over all ranks where it was logged with `sync_dist`."""
        logged = [entry for entry in self.entries.values() if entry.batch is not None]
        if synced := sorted((each for each in logged if each.sync), key=lambda each: each.name):
            ranks = all_gather_json([each.batch for each in synced])
            for entry, pairs in zip(synced, zip(*ranks, strict=True), strict=True):
                entry.shown = value_of(entry.how, pairs) or 0.0
        return logged

    def of_epoch(self, stage: str, ends: bool) -> list[tuple[Logged, float]]:
        """Return each entry of a stage with its value over all ranks; reset them if the stage `ends`."""
        metrics = {name: child for name, child in self.module.named_modules() if isinstance(child, Metric)}
        names = {id(metric): name for name, metric in metrics.items()}
        entries = self.stages.setdefault(stage, {})
        totals: dict[str, list[Any]] = {}
        mine = [vars(each) | {"metric": names.get(id(each.metric))} for each in entries.values()]
        for of_rank in all_gather_json(mine):  # a rank without samples has logged nothing
            for values in of_rank:
                entry = entries.setdefault(values["name"], Logged(**values | {"metric": None, "epoch": (0.0, 0.0)}))
                entry.metric = entry.metric or metrics.get(values["metric"])
                totals.setdefault(entry.name, []).append(values["epoch"])
        results = []
        for name in sorted(totals):
            entry = entries[name]
            if entry.metric is None:
                value = value_of(entry.how, totals[name])
            else:
                for count in ("tp", "fp", "tn", "fn"):  # float64 has them exactly; torchmetrics divides in float32
                    if isinstance(state := getattr(entry.metric, count, None), Tensor):
                        setattr(entry.metric, count, state.double())
                value = float(entry.metric.compute()) if entry.on_epoch else None
            results += [] if value is None else [(entry, float(value))]
        for entry in entries.values() if ends else ():
            if entry.metric is not None:
                entry.metric.reset()
            entry.metric, entry.epoch = None, (0.0, 0.0)
        return results


class Record:
    """What a run measures: results over all ranks, and record.jsonl. Each rank collects its steps of an epoch.

    values: the latest results. epoch_values: those of the current epoch. steps: optimizer steps in all.
    lines: the steps of this epoch. window: the batches of the current step.
    """

    epoch = batches = steps = samples = 0
    logs_loss = False

    def __init__(self, rank: Any) -> None:
        self.rank, self.log, self.path = rank, rank.log, Path(rank.job.world.folder) / "record.jsonl"
        self.values: dict[str, float] = {}
        self.epoch_values: dict[str, float] = {}
        self.best: dict[str, Any] = {}
        self.lines: list[dict[str, Any]] = []
        self.window: list[tuple[float, int, float, int]] = []
        modules = [*rank.module.modules()]
        rates = [each.p for each in modules if isinstance(each, DROPOUT)]
        rates += [each.dropout for each in modules if isinstance(each, nn.RNNBase | nn.MultiheadAttention)]
        self.metadata = {**rank.job.metadata, "dropout_rng": "per_rank" if any(rates) else "none"}
        norms = [each for each in modules if isinstance(each, BATCHNORM) and not rank.config.sync_batchnorm]
        differ = rank.world > 1 and any(each.track_running_stats for each in norms)
        if rank.rank == 0:
            self.path.write_text("")
        batchnorm = "per_rank" if norms else "none"
        self.write([{"run": {**self.metadata, "per_rank_buffers": differ, "batchnorm": batchnorm}}])

    def write(self, lines: Iterable[Mapping[str, Mapping[str, Any]]]) -> None:
        if self.rank.rank == 0:
            with self.path.open("a") as file:
                file.writelines(json.dumps({kind: finite(line[kind]) for kind in line}) + "\n" for line in lines)

    def begin_stage(self, stage: str) -> None:
        self.log.begin_stage(stage)
        for metric in self.rank.module.modules() if self.rank.dtype == torch.float64 else ():
            if isinstance(metric, Metric):
                widen_metric(metric)

    def begin_batch(self, share: Share) -> None:
        self.rank.updates, self.rank.loss, self.rank.weight = [], None, share.count
        self.log.begin_batch("train", share.count)

    def show_batch(self) -> None:
        """Show what the batch has logged to whoever reads `trainer.callback_metrics`."""
        trainer = self.rank.trainer
        for entry in self.log.of_batch():
            value = torch.tensor(entry.shown, dtype=torch.float64)
            trainer.logged_metrics[entry.forked("step")] = value
            if self.log.stage == "train":
                trainer.callback_metrics |= {entry.name: value, entry.forked("step"): value}

    def end_batch(self, share: Share, is_step: bool) -> None:
        """Record a batch, and the optimizer step that ends with it, after its last hook."""
        self.show_batch()
        rank, log, weight, config = self.rank, self.log, self.rank.weight, self.rank.config
        loss = None if rank.loss is None else rank.loss.item()
        if config.detect_nan and not math.isfinite(loss or 0.0):
            raise not_finite(f"the loss of step {self.steps + 1}", loss)
        if loss is not None and (self.logs_loss or "train/loss" not in log.entries):
            self.logs_loss = True
            log.log("train/loss", loss, on_step=False, on_epoch=True, batch_size=weight)
        loss_sum = 0.0 if loss is None or not weight else loss if config.loss_reduction == "sum" else loss * weight
        ids = hash_ids(share.ids, self.batches * rank.loaders("train")[0].size + rank.rank, rank.world)
        self.window.append((loss_sum, share.count, weight, ids))
        self.batches, self.samples = self.batches + 1, self.samples + share.count
        if is_step:
            logged: dict[str, Any] = {"logged": {}, "metrics": {}}
            for entry in log.entries.values():
                if entry.batch is not None:
                    kind = "logged" if entry.metric is None else "metrics"
                    logged[kind][entry.forked("step")] = (*entry.batch, entry.how)
            updates = rank.updates if not rank.module.automatic_optimization else rank.updates[-1:]
            squares = added(norm * norm for _, norms in updates for norm in norms)
            norm = torch.tensor(squares, dtype=torch.float64).sqrt().item()
            rate = updates[0][0] if updates else rate_of(rank.trainer.optimizers[0])
            names = ("loss_sum", "samples", "weight", "ids")
            sums = dict(zip(names, map(added, zip(*self.window, strict=True)), strict=True))
            self.lines.append({**sums, "lr": rate, "grad_norm": norm, "logged": logged})
            self.steps, self.window = self.steps + 1, []
        log.end_batch("train")

    def flush(self) -> None:
        """Write the steps of the epoch up to now, over all ranks."""
        first = self.steps - len(self.lines) + 1
        for number, ranks in enumerate(zip(*all_gather_json(self.lines), strict=True), start=first):
            place = {"epoch": self.epoch + 1, "step": number}
            self.write([{"step": {**place, **step_line(ranks)}}])
        self.lines = []

    def end_stage(self, stage: str, ends: bool) -> None:
        """Reduce what a stage has logged over all ranks: before its last hooks, and again at its end."""
        trainer, results = self.rank.trainer, self.log.of_epoch(stage, ends)
        for entry, value in results if not trainer.sanity_checking else ():
            name, tensor = entry.forked("epoch"), torch.tensor(value, dtype=torch.float64)
            trainer.logged_metrics[name] = tensor
            trainer.callback_metrics |= {entry.name: tensor, name: tensor}
            if ends:
                self.values[name] = value
                if stage != "test":
                    self.epoch_values[name] = value

    def end_validation(self, **place: int) -> None:
        """Record a validation; `place`: after which step and batch, if it is within an epoch."""
        self.flush()
        if self.epoch_values:
            self.write([{"validation": {"epoch": self.epoch + 1, **place, **self.epoch_values}}])
        if self.rank.config.detect_nan and not math.isfinite(self.epoch_values.get("val/loss", 0.0)):
            raise not_finite(f"the validation loss after epoch {self.epoch + 1}", self.epoch_values["val/loss"])
        if place:
            self.update_best(self.epoch_values)
            self.epoch_values = {}

    def end_epoch(self, validated: bool) -> None:
        self.end_validation()
        config, monitor = self.rank.config, self.rank.config.checkpoint.monitor or ""
        if validated or not self.rank.validates or monitor in self.epoch_values or monitor.startswith("train/"):
            self.update_best(self.values)
        self.epoch, self.batches = self.epoch + 1, 0
        if self.rank.rank == 0:
            shown = "  ".join(f"{name} {value:.4f}" for name, value in sorted(self.epoch_values.items()))
            print(f"epoch {self.epoch}/{config.max_epochs}  {shown}", flush=True)
        self.epoch_values = {}

    @property
    def epochs_begun(self) -> int:
        return self.epoch + bool(self.batches)

    def update_best(self, values: Mapping[str, float]) -> None:
        """Note the best epoch by the value that is monitored, in float32; the first of equals is the best."""
        name, mode = self.rank.config.checkpoint.monitor, self.rank.config.checkpoint.mode
        candidates = (name,) if name else (getattr(self.rank.module, "monitor", None), *LOSSES)
        name = next((each for each in candidates if each in self.values), None)
        if name in values:
            mode = mode or ("max" if BETTER_ABOVE.search(name.lower()) else "min")
            value, sign = torch.tensor(values[name], dtype=torch.float32).item(), 1 if mode == "min" else -1
            badness = math.inf if math.isnan(value) else sign * value
            if not self.best or badness < sign * self.best["best"]:
                best_epoch = self.epoch + 1
                self.best = {"monitor": name, "mode": mode, "best": sign * badness, "best_epoch": best_epoch}

    def end(self) -> None:
        """Write the digests of the final weights, and last.ckpt."""
        rank, state = self.rank, self.rank.module.state_dict()
        self.flush()
        tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        self.write([{"tensor": {"name": name, "digest": digest([tensors[name]])}} for name in tensors])
        self.digest = digest(tensors.values())
        if rank.rank == 0 and not rank.config.trainer.barebones:
            position = {"epochs": self.epoch, "batch": self.batches, "steps": self.steps}
            content = {"plan": rank.job.plan, "position": position, "ended": rank.trainer.should_stop}
            states = [each.state_dict() if each.param_groups else {} for each in rank.trainer.optimizers]
            schedules = [each.scheduler.state_dict() for each in rank.trainer.lr_scheduler_configs]
            epoch = self.epoch if self.batches else self.epoch - 1
            checkpoint = {"epoch": epoch, "global_step": rank.trainer.global_step, "state_dict": state}
            checkpoint |= {"optimizer_states": states, "lr_schedulers": schedules, "lockstep": content}
            rank.module.on_save_checkpoint(checkpoint)
            path = self.path.with_name("checkpoints") / "last.ckpt"
            path.parent.mkdir(exist_ok=True)
            with atomic_write(path) as temporary:
                torch.save(plain(checkpoint), temporary)

    def results(self) -> dict[str, Any]:
        """Return the content of metrics.json."""
        seconds, epochs = self.rank.seconds, self.epochs_begun
        parameters = sum(parameter.numel() for parameter in self.rank.module.parameters())
        metrics = {**self.metadata, "parameters": parameters, "epochs": epochs, "steps": self.steps}
        speed = self.samples * self.rank.world / seconds if seconds else 0.0
        metrics |= {"train_seconds": seconds, "samples_per_second": speed}
        return {**metrics, **self.values, **metrics, **self.best, "digest": self.digest}


def not_finite(name: str, value: Any) -> NotFinite:
    return NotFinite(f"{name} is {value}; write a smaller optimizer.lr, or detect_nan=false to train on.")


def step_line(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of a step over all ranks; `loss_sum` is the mean over what counts, times the samples."""
    loss, samples, weight = (added(step[key] for step in ranks) for key in ("loss_sum", "samples", "weight"))
    norms = [step["grad_norm"] for step in ranks]
    line: dict[str, Any] = {
        "samples": samples,
        "ids": f"{sum(step['ids'] for step in ranks) % 2**64:016x}",
        "lr": ranks[0]["lr"],
        "loss_sum": loss if weight in (samples, 0) else loss / weight * samples,
        "grad_norm": norms[0],
        "grad_norm_spread": max(abs(norm - norms[0]) for norm in norms),
    }
    for kind in ("logged", "metrics"):
        values: dict[str, float] = {}
        for name in sorted({name for step in ranks for name in step["logged"][kind]}):
            pairs = [step["logged"][kind][name] for step in ranks if name in step["logged"][kind]]
            value = value_of(pairs[0][2], [(total, weight) for total, weight, _ in pairs])
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


def data_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor in logical order."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def digest(tensors: Iterable[Tensor]) -> str:
    """Return the SHA-256 of tensors."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(data_of(tensor))
    return sha.hexdigest()


@contextmanager
def preserved_metrics(module: nn.Module) -> Iterator[None]:
    """Restore the torchmetrics of a module afterwards."""
    plain_types = (Tensor, list, int, bool, float, type(None))
    metrics = [each for each in module.modules() if isinstance(each, Metric)]
    states = [
        {name: deepcopy(value) for name, value in vars(each).items() if isinstance(value, plain_types)}
        for each in metrics
    ]
    yield
    for metric, state in zip(metrics, states, strict=True):
        vars(metric).update(state)
