"""Measurements and files of a run: record.jsonl, last.ckpt and the content of metrics.json."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning
import numpy as np
import torch
from torch import Tensor, nn

from lockstep.base.errors import NotFinite
from lockstep.base.files import atomic_write, finite
from lockstep.base.messages import all_gather_json
from lockstep.base.private_api.torch import BATCHNORM, DROPOUT
from lockstep.base.safe_loading import is_loadable, plain
from lockstep.raw.data import Share
from lockstep.raw.log import added, value_of

if TYPE_CHECKING:
    from lockstep.raw.trainer import Trainer

LOSSES = ("val_loss", "val/loss", "valid_loss", "validation_loss", "train/loss")
MORE_IS_BETTER = re.compile(r"(acc|accuracy|f1|r2|auc|auroc|precision|recall)$")


class Record:
    """The measurements of a run over all ranks, and record.jsonl. Each rank collects its steps of an epoch.

    epoch, batches, steps: complete epochs, batches of the next one, optimizer steps in all. lines: the epoch's steps.
    window: sums of the current step. values, epoch_values: the latest results, and those of the epoch.
    """

    epoch = batches = steps = all_samples = 0
    logs_loss = False

    def __init__(self, trainer: "Trainer") -> None:
        self.trainer, self.path = trainer, Path(trainer.default_root_dir) / "record.jsonl"
        self.values, self.epoch_values, self.best, self.window = (dict[str, Any]() for _ in range(4))
        self.lines: list[dict[str, Any]] = []
        modules = [*trainer.module.modules()]
        rates = [each.p for each in modules if isinstance(each, DROPOUT)]
        rates += [each.dropout for each in modules if isinstance(each, nn.RNNBase | nn.MultiheadAttention)]
        self.metadata = {**trainer.job.metadata, "dropout_rng": "per_rank" if any(rates) else "none"}
        norms = [each for each in modules if isinstance(each, BATCHNORM) and not trainer.config.sync_batchnorm]
        differ = trainer.world_size > 1 and any(each.track_running_stats for each in norms)
        self.write("run", {**self.metadata, "per_rank_buffers": differ})

    def write(self, kind: str, values: Mapping[str, Any]) -> None:
        if self.trainer.is_global_zero:
            with self.path.open("w" if kind == "run" else "a") as file:
                file.write(json.dumps({kind: finite(values)}) + "\n")

    def end_stage(self, stage: str) -> None:
        """Keep what a stage has logged, after its last hooks."""
        values = self.trainer.log.reduce(stage, ends=True)
        self.values |= values
        self.epoch_values |= values if stage != "test" else {}

    def end_batch(self, share: Share, is_step: bool) -> None:
        """Record a batch, and the optimizer step that ends with it (`is_step`), after its last hook."""
        trainer, log, config, count = self.trainer, self.trainer.log, self.trainer.config, self.trainer.count
        log.show_batch()
        loss = None if trainer.loss is None else trainer.loss.item()
        self.require_finite(f"the loss of step {self.steps + 1}", loss)
        if loss is not None and (self.logs_loss or "train/loss" not in log.logged["train"]):
            self.logs_loss = True
            log.log("train/loss", loss, on_step=False, on_epoch=True, batch_size=count)
        loss_sum = 0.0 if loss is None or not count else loss if config.loss_reduction == "sum" else loss * count
        ids = hash_ids(share.ids, self.batches * config.batch_size + trainer.global_rank, trainer.world_size)
        sums = {"loss_sum": loss_sum, "samples": len(share.ids), "count": count, "ids": ids}
        self.window = {name: self.window.get(name, 0) + sums[name] for name in sums}
        self.batches, self.all_samples = self.batches + 1, self.all_samples + share.total
        if is_step:
            line: dict[str, Any] = {**self.window, "logged": {}, "metrics": {}}
            for entry in log.of_batch():
                pair: Any = entry.batch
                line["logged" if entry.metric is None else "metrics"][entry.named("step")] = (*pair, entry.how)
            updates = trainer.updates[-1:] if trainer.module.automatic_optimization else trainer.updates
            line["lr"] = updates[0][0] if updates else float(trainer.optimizers[0].param_groups[0]["lr"])
            squares = added(norm * norm for _, norms in updates for norm in norms)
            line["grad_norm"] = torch.tensor(squares, dtype=torch.float64).sqrt().item()
            self.lines.append(line)
            self.steps, self.window = self.steps + 1, {}
        log.between_batches("train")

    def require_finite(self, name: str, loss: float | None) -> None:
        if self.trainer.config.detect_nan and not math.isfinite(loss or 0.0):
            raise NotFinite(f"{name} is {loss}; write a smaller optimizer.lr, or detect_nan=false to train on.")

    def flush(self) -> None:
        """Write the steps of the epoch up to now, over all ranks."""
        by_rank = zip(*all_gather_json(self.lines), strict=True)
        for number, ranks in enumerate(by_rank, start=self.steps - len(self.lines) + 1):
            self.write("step", {"epoch": self.epoch + 1, "step": number, **step_line(ranks)})
        self.lines = []

    def end_validation(self, **place: int) -> None:
        """Record a validation; `place`: after which step and batch, if it is within an epoch."""
        self.flush()
        if self.epoch_values:
            self.write("validation", {"epoch": self.epoch + 1, **place, **self.epoch_values})
        self.require_finite(f"the validation loss after epoch {self.epoch + 1}", self.epoch_values.get("val/loss"))
        if place:
            self.update_best(self.epoch_values)
            self.epoch_values = {}

    def end_epoch(self, validated: bool) -> None:
        self.end_validation()
        config, monitor = self.trainer.config, self.trainer.config.checkpoint.monitor or ""
        if validated or not self.trainer.runs("val") or monitor in self.epoch_values or monitor.startswith("train/"):
            self.update_best(self.values)
        self.epoch, self.batches, self.window = self.epoch + 1, 0, {}
        shown = "  ".join(f"{name} {value:.4f}" for name, value in sorted(self.epoch_values.items()))
        self.trainer.print(f"epoch {self.epoch}/{config.max_epochs}  {shown}", flush=True)
        self.epoch_values = {}

    def update_best(self, values: Mapping[str, float]) -> None:
        """Note the best epoch by the value that is monitored, in float32; the first of equals is the best."""
        chosen = self.trainer.config.checkpoint
        candidates = (chosen.monitor,) if chosen.monitor else (getattr(self.trainer.module, "monitor", None), *LOSSES)
        name = next((each for each in candidates if each in self.values), None)
        if name is None or name not in values:
            return
        mode = chosen.mode or ("max" if MORE_IS_BETTER.search(name.lower()) else "min")
        value, sign = torch.tensor(values[name], dtype=torch.float32).item(), 1 if mode == "min" else -1
        badness = math.inf if math.isnan(value) else sign * value
        if not self.best or badness < sign * self.best["best"]:
            self.best = {"monitor": name, "mode": mode, "best": sign * badness, "best_epoch": self.epoch + 1}

    def end(self) -> None:
        """Write the digests of the final weights, and last.ckpt."""
        trainer, state, epochs = self.trainer, self.trainer.module.state_dict(), self.epoch + bool(self.batches)
        self.flush()
        tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        for name, tensor in tensors.items():
            self.write("tensor", {"name": name, "digest": digest([tensor])})
        position = {"epochs": self.epoch, "batch": self.batches, "steps": self.steps}
        checkpoint = {"epoch": epochs - 1, "global_step": trainer.global_step, "state_dict": state}
        states = [each.state_dict() for each in trainer.optimizers]
        checkpoint["optimizer_states"] = [each if each["param_groups"][0]["params"] else {} for each in states]
        checkpoint["lr_schedulers"] = [each.scheduler.state_dict() for each in trainer.lr_scheduler_configs]
        checkpoint["lockstep"] = {"plan": trainer.job.plan, "position": position, "ended": trainer.should_stop}
        checkpoint["pytorch-lightning_version"] = lightning.__version__
        trainer.module.on_save_checkpoint(checkpoint)
        checkpoint |= {type(each).__qualname__: each.state_dict() for each in trainer.owners[:-1] if each.state_dict()}
        safe = {name: value for name, value in plain(checkpoint).items() if value is state or is_loadable(value)}
        if trainer.is_global_zero:
            (folder := self.path.with_name("checkpoints")).mkdir(exist_ok=True)
            with atomic_write(folder / "last.ckpt") as temporary:
                torch.save(safe, temporary)
        self.metadata["parameters"] = sum(each.numel() for each in trainer.module.parameters())
        self.metadata |= {"epochs": epochs, "steps": self.steps}
        self.digest = digest(tensors.values())

    def results(self) -> dict[str, Any]:
        """Return the content of metrics.json."""
        seconds = self.trainer.seconds
        timing = {"train_seconds": seconds, "samples_per_second": self.all_samples / (seconds or math.inf)}
        return {**self.metadata, **timing, **self.values, **self.metadata, **self.best, "digest": self.digest}


def step_line(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of a step over all ranks; `loss_sum` is the mean over what counts, times the samples."""
    loss, samples, count, ids = (added(each[key] for each in ranks) for key in ("loss_sum", "samples", "count", "ids"))
    norms = [each["grad_norm"] for each in ranks]
    line: dict[str, Any] = {"samples": samples, "ids": f"{ids % 2**64:016x}", "lr": ranks[0]["lr"]}
    line["loss_sum"] = loss if count in (samples, 0) else loss / count * samples
    line |= {"grad_norm": norms[0], "grad_norm_spread": max(abs(norm - norms[0]) for norm in norms)}
    for kind in ("logged", "metrics"):
        values: dict[str, float] = {}
        for name in sorted({name for each in ranks for name in each[kind]}):
            logged = [each[kind][name] for each in ranks if name in each[kind]]
            value = value_of(logged[0][2], [(total, count) for total, count, _ in logged])
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
