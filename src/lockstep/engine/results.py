"""The results of a run: values of each stage over all ranks, for the record, metrics.json, loggers and callbacks."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never

import torch
from torch import Tensor

from lockstep.base.config_error import config_error
from lockstep.base.messages import all_reduce_sums
from lockstep.engine.log import ExactLog
from lockstep.engine.logged_values import Value
from lockstep.engine.progress import Phases, RunProgress, phases_text
from lockstep.plan.plan import Plan
from lockstep.runs.checkpoint.content import Progress
from lockstep.runs.checkpoint.saving import CheckpointManager
from lockstep.runs.loggers import Loggers
from lockstep.runs.record import run_metadata
from lockstep.runs.record.fingerprint import digest
from lockstep.runs.record.step_lines import Scalar
from lockstep.runs.run_files import Metrics
from lockstep.strategies.parallel.tensor_layout import full_state_dict

if TYPE_CHECKING:
    from tqdm import tqdm

LOSSES = ("val_loss", "val/loss", "valid_loss", "validation_loss", "train/loss")
"""What best.ckpt is best by if neither the plan nor the module says: the first of these that a module logs."""
STEP_LOSS = "train/loss_step"
BAR = "{desc}: {percentage:3.0f}%|{bar:8}| {n_fmt}/{total_fmt} [{remaining}, {rate_noinv_fmt}{postfix}]"
"""Of tqdm: narrow, so that 80 columns have room for a metric."""


class StepCurve:
    """The curves over optimizer steps: every `log_every_n_steps` the loss and the speed of training.

    totals: this rank's since the last point: of the loss times what it counts, of what it counts, and of samples.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.point_time = device, time.perf_counter()
        self.totals: tuple[Scalar, float, float] = 0.0, 0.0, 0.0

    def begin(self) -> None:
        """Begin anew, so that no point has the time between two epochs."""
        self.point_time, self.totals = time.perf_counter(), (0.0, 0.0, 0.0)

    def add(self, loss_sum: Scalar, weight: float, samples: int) -> None:
        """Add a batch whose loss times `weight` is `loss_sum`."""
        earlier_loss, earlier_weight, earlier_samples = self.totals
        self.totals = earlier_loss + loss_sum, earlier_weight + weight, earlier_samples + samples

    def point(self) -> dict[str, float]:
        """Return the values since the last point, over all ranks; begin the next one. To be called by every rank."""
        loss, weight, samples = all_reduce_sums(self.sums, self.device).tolist()
        speed = samples / (time.perf_counter() - self.point_time)
        self.begin()
        return {**({STEP_LOSS: loss / weight} if weight else {}), "samples_per_second": speed}

    @property
    def sums(self) -> Tensor:
        """Return the totals, for a message or a checkpoint."""
        return torch.tensor([float(total) for total in self.totals], dtype=torch.float64)


class Display:
    """`has_bar`: False if a callback shows one of its own. The bar is removed at the end."""

    bar: "tqdm[Never] | None" = None
    latest: Mapping[str, float] = {}

    def __init__(self, plan: Plan, rank: int) -> None:
        self.epochs, self.batches = plan.max_epochs, plan.steps.epoch_batches
        wanted = plan.trainer.enable_progress_bar
        self.has_bar = rank == 0 and (sys.stdout.isatty() if wanted is None else wanted)
        self.has_lines = rank == 0 and not self.has_bar

    def begin_epoch(self, position: Progress) -> None:
        """Start the clock of an epoch; batches of an earlier run do not count for the bar's speed."""
        self.began = time.perf_counter()
        if not self.has_bar:
            return
        title = f"epoch {position.epochs + 1}/{self.epochs}"
        if self.bar is None:
            from tqdm import tqdm  # for a terminal alone

            total, done = self.epochs * self.batches or None, position.epochs * self.batches + position.batch
            style: Any = {"unit": "batch", "mininterval": 0.2, "leave": False, "dynamic_ncols": True}
            self.bar = tqdm(desc=title, total=total, initial=done, bar_format=BAR if total else None, **style)
        self.bar.set_description_str(title, refresh=False)

    def end_batch(self, metrics: Mapping[str, float]) -> None:
        """Show that a batch has ended, and the values of the module's `prog_bar` whenever tqdm draws the bar."""
        if self.bar is not None and self.bar.update():
            self.show(metrics)

    def show(self, metrics: Mapping[str, float]) -> None:
        """Show the latest metrics in the bar, those of validation first: a narrow terminal cuts the rest off."""
        self.latest = metrics
        if self.bar is not None:
            named = sorted(metrics.items(), key=lambda item: (not item[0].startswith("val"), item[0]))
            self.bar.set_postfix_str(" ".join(f"{name} {float(value):.4g}" for name, value in named))

    def end_epoch(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Print the line of an epoch, counted from 1; without metrics, with the values of its last batch."""
        if self.has_lines:
            named = "  ".join(f"{name} {value:.4f}" for name, value in sorted((metrics or self.latest).items()))
            print(f"epoch {epoch}/{self.epochs}  {named}  {time.perf_counter() - self.began:.2f} s", flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class Results:
    """`values`: the latest by name; `epoch_values`: those of the current epoch, for the record.

    validated: whether the current epoch has been validated.
    work: curves of the work of the last complete epoch.
    checkpoints: set when a session that trains begins.
    """

    checkpoints: CheckpointManager

    def __init__(self, module: Any, log: ExactLog, loggers: Loggers, progress: RunProgress, phases: Phases) -> None:
        self.module, self.log, self.loggers, self.progress, self.phases = module, log, loggers, progress, phases
        self.plan = progress.plan
        self.values: dict[str, float] = {}
        self.epoch_values: dict[str, float] = {}
        self.validated = False
        self.work: dict[str, float] = {}
        self.digest = ""
        self.curve = StepCurve(phases.device)
        self.display = Display(self.plan, progress.context.rank)

    def update_step_metrics(self, trainer: Any) -> None:
        """Update the trainer's metrics by what the batch has logged. To be called by every rank.

        An evaluation's values of a batch are this rank's, and callbacks do not monitor them, as in Lightning.
        """
        if self.log.is_fresh:
            if self.log.stage == "train":
                self.log.sync_steps()
                trainer.callback_metrics.update(as_tensors(self.log.monitored()))
            trainer.logged_metrics.update(as_tensors(self.log.step("logger")))
            trainer.progress_bar_metrics.update(self.log.step("prog_bar"))

    def reduce_stage(self, trainer: Any, stage: str) -> None:
        """Reduce the values of a stage, so that its last hooks can read them. To be called by every rank."""
        if self.log.in_batch:  # Lightning's loops take it for the end of the data
            raise RuntimeError(f"StopIteration, raised in a {stage} batch by a step or a hook, would end the epoch")
        if not self.progress.checking:
            self._update_metrics(trainer, self.log.epoch(stage))

    def end_stage(self, trainer: Any, stage: str) -> None:
        """Add what the last hooks of a stage have logged; record and log its values. To be called by every rank."""
        logged, position = self.log.end_epoch(stage), self.progress.position
        if self.progress.checking:
            return
        values = {entry.epoch_name: value for entry, value in logged}
        self.values |= values
        if stage != "test":
            self.epoch_values |= values
        to_loggers = self._update_metrics(trainer, logged)
        self.display.show(trainer.progress_bar_metrics)
        if stage == "train":
            to_loggers |= self.work
        self.to_loggers(to_loggers, position.begun if stage == "test" else position.epochs)

    def _update_metrics(self, trainer: Any, logged: Sequence[tuple[Value, float]]) -> dict[str, float]:
        """Update what callbacks read; return the values for loggers."""
        monitored = {name: value for entry, value in logged for name in (entry.name, entry.epoch_name)}
        to_loggers = {entry.epoch_name: value for entry, value in logged if entry.logger}
        in_bar = {entry.epoch_name: value for entry, value in logged if entry.prog_bar}
        trainer.callback_metrics.update(as_tensors(monitored))
        trainer.logged_metrics.update(as_tensors(to_loggers))
        trainer.progress_bar_metrics.update(in_bar)
        return to_loggers

    def end_validation(self) -> None:
        """Record a validation within an epoch, and whether it is the best so far."""
        position, recorder = self.progress.position, self.checkpoints.recorder
        recorder.flush(position.epochs + 1, position.steps)
        if self.epoch_values:
            recorder.validation(position.epochs + 1, self.epoch_values, position.steps, position.batch)
        self._update_best(self.epoch_values)
        self.epoch_values = {}

    def end_epoch(self) -> None:
        """Record a complete epoch and its validation, and whether it is the best so far."""
        done, monitor, recorder = self.progress.position, self.plan.checkpoint.monitor or "", self.checkpoints.recorder
        self.progress.position = position = Progress(done.epochs + 1, 0, done.steps)
        recorder.end_epoch(position.epochs, position.steps)
        if self.epoch_values:
            recorder.validation(position.epochs, self.epoch_values)
        validates = self.progress.has_validation and self.plan.steps.reaches_validation
        if self.validated or not validates or monitor in self.epoch_values or monitor.startswith("train/"):
            self._update_best(self.values)
        self.epoch_values, self.validated = {}, False
        self.display.end_epoch(position.epochs, self.values)

    def finish(self) -> Metrics:
        """Return the content of metrics.json, on every rank."""
        plan, position = self.plan, self.progress.position
        if plan.profiler == "simple" and self.progress.context.rank == 0:
            print(f"\n{phases_text(self.phases)}", flush=True)
        seconds, samples = self.phases.seconds, self.phases.samples
        metrics: Metrics = {
            **run_metadata(plan, self.module),
            "parameters": sum(parameter.numel() for parameter in self.module.parameters()),
            "epochs": position.begun,
            "steps": position.steps,
            "train_seconds": seconds,
            "samples_per_second": samples / seconds if seconds and samples else 0.0,
        }
        metrics = {**metrics, **self.values, **metrics}
        if plan.train:
            metrics |= self.checkpoints.best_metrics
        return {**metrics, "digest": self.digest or digest(full_state_dict(self.module))}

    def to_loggers(self, values: Mapping[str, float], epoch: int) -> None:
        """Log values, if there are any, at the current optimizer step."""
        if values:
            self.loggers.log_metrics({**values, "epoch": epoch}, self.progress.position.steps)

    def _update_best(self, values: Mapping[str, float]) -> None:
        """Note whether results, of a validation alone within an epoch, are the best: then so is the next checkpoint."""
        name = self.plan.checkpoint.monitor
        defaults = (getattr(self.module, "monitor", None), *LOSSES)
        monitor = name or next((each for each in defaults if each in self.values), "")
        if values is not self.values and monitor not in values:
            return
        if name and name not in self.values:
            reason, logged = f"{self.plan.model.name} logs no such value", ", ".join(sorted(self.values)) or "none"
            raise config_error("checkpoint.monitor", name, reason, f"one of {logged}")
        if monitor:
            self.checkpoints.set_monitor(monitor)
            self.checkpoints.update_best(self.values, self.progress.position.begun)
        else:
            self.checkpoints.best_yet = True  # no value ranks them: the newest is the best


def as_tensors(values: Mapping[str, float]) -> dict[str, Tensor]:
    """Return metrics as callbacks expect them."""
    return {name: torch.full((), value, dtype=torch.float64) for name, value in values.items()}
