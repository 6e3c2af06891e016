"""What a run measures and leaves: record.jsonl, last.ckpt and the content of metrics.json."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import Metric

from lockstep.base.errors import NotFinite
from lockstep.base.files import atomic_write, finite
from lockstep.base.messages import all_gather_json
from lockstep.base.private_api.torch import BATCHNORM, DROPOUT
from lockstep.base.private_api.torchmetrics import widen_metric
from lockstep.base.safe_loading import is_loadable, plain
from lockstep.raw.data import Share
from lockstep.raw.log import added, value_of
from lockstep.raw.step import rate_of

LOSSES = ("val_loss", "val/loss", "valid_loss", "validation_loss", "train/loss")
MORE_IS_BETTER = re.compile(r"(acc|accuracy|f1|auc|auroc|precision|recall)$")


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
        self.write([{"run": {**self.metadata, "per_rank_buffers": differ}}])

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
        ids = hash_ids(share.ids, self.batches * config.batch_size + rank.rank, rank.world)
        self.window.append({"loss_sum": loss_sum, "samples": share.count, "weight": weight, "ids": ids})
        self.batches, self.samples = self.batches + 1, self.samples + share.total
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
        validates = self.rank.runs("val") and (config.trainer.check_val_every_n_epoch or 1) <= config.max_epochs
        if validated or not validates or monitor in self.epoch_values or monitor.startswith("train/"):
            self.update_best(self.values)
        self.epoch, self.batches, self.window = self.epoch + 1, 0, []
        if self.rank.rank == 0:
            shown = "  ".join(f"{name} {value:.4f}" for name, value in sorted(self.epoch_values.items()))
            print(f"epoch {self.epoch}/{config.max_epochs}  {shown}", flush=True)
        self.epoch_values = {}

    def update_best(self, values: Mapping[str, float]) -> None:
        """Note the best epoch by the value that is monitored, in float32; the first of equals is the best."""
        monitor, mode = self.rank.config.checkpoint.monitor, self.rank.config.checkpoint.mode
        candidates = (monitor,) if monitor else (getattr(self.rank.module, "monitor", None), *LOSSES)
        name = next((each for each in candidates if each in self.values), None)
        if name is not None and name in values:
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
        checkpoint["pytorch-lightning_version"] = lightning.__version__
        rank.module.on_save_checkpoint(checkpoint)
        safe = {name: value for name, value in plain(checkpoint).items() if value is state or is_loadable(value)}
        if rank.rank == 0:
            path = self.path.with_name("checkpoints") / "last.ckpt"
            path.parent.mkdir(exist_ok=True)
            with atomic_write(path) as temporary:
                torch.save(safe, temporary)

    def results(self) -> dict[str, Any]:
        """Return the content of metrics.json."""
        seconds, parameters = self.rank.seconds, sum(each.numel() for each in self.rank.module.parameters())
        metrics = {**self.metadata, "parameters": parameters, "epochs": self.epochs_begun, "steps": self.steps}
        speed = self.samples / seconds if seconds else 0.0
        metrics |= {"train_seconds": seconds, "samples_per_second": speed}
        return {**metrics, **self.values, **metrics, **self.best, "digest": self.digest}


def step_line(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of a step over all ranks; `loss_sum` is the mean over what counts, times the samples."""
    sums = (added(each[key] for each in ranks) for key in ("loss_sum", "samples", "weight", "ids"))
    loss, samples, weight, ids = sums
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
        sha.update(tensor.detach().cpu().to_dense().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()
