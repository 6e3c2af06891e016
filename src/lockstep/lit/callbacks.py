"""What happens around the steps: totals over ranks, curves, times, and what must be equal or end on every rank."""

import time
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.optim import Optimizer

from lockstep.parallel import all_reduce_sums, broadcast_buffers, synchronize
from lockstep.recorder import Recorder
from lockstep.running_sums import EvaluationSums, RunningSums, Sums
from lockstep.task import LOSS, SAMPLES, Task


class EpochMetrics(Callback):
    """Add the steps' sums over batches, then over ranks in one collective, and divide once.

    `results` holds the latest metrics in float64 (`log` rounds what it hands on to float32), `confusion` the counts of
    the latest evaluation, `trained` the number of samples trained on in this run.
    """

    def __init__(self, task: Task) -> None:
        self.task, self.training = task, RunningSums(task)
        self.results: dict[str, float] = {}
        self.trained = 0
        self.met = False  # whether the epoch's sums have met those of the other ranks

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.training = RunningSums(self.task)

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.evaluation = EvaluationSums(self.task, pl_module.device)

    def on_test_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.evaluation = EvaluationSums(self.task, pl_module.device)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        self.training.add(outputs["stats"])

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        self.evaluation.add(outputs["stats"], outputs["outputs"], batch.targets)

    def on_test_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        self.evaluation.add(outputs["stats"], outputs["outputs"], batch.targets)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Of the training epoch too, which ends after its validation: the sums of both meet in one message."""
        trained = self.training.sums
        totals = all_reduce_sums(torch.cat([trained, self.evaluation.totals]), pl_module.device)
        self._trained(totals[: len(trained)])
        self._measured("val", totals[len(trained) :], trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Kept from the loggers, where `train/loss` is a curve over steps."""
        if not self.met:
            self._trained(all_reduce_sums(self.training.sums, pl_module.device))
        self.met = False
        trained = {name: value for name, value in self.results.items() if name.startswith("train/")}
        pl_module.log_dict(trained, logger=False, prog_bar=True)

    def on_test_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._measured("test", all_reduce_sums(self.evaluation.totals, pl_module.device), trainer, pl_module)

    def _trained(self, totals: Sums) -> None:
        self.met = True
        self.trained += int(totals[SAMPLES])
        self.results |= self.task.metrics("train", totals)

    def _measured(self, stage: str, totals: Tensor, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """To the loggers at the step that training has reached: by `self.log` it would be one less."""
        metrics, self.confusion = self.task.metrics(stage, totals), self.task.confusion_of(totals)
        self.results |= metrics
        module.log_dict(dict(metrics), logger=False, prog_bar=True)
        for logger in trainer.loggers:
            logger.log_metrics({**metrics, "epoch": trainer.current_epoch}, step=trainer.global_step)


class StepLogger(Callback):
    """Every N optimizer steps: the loss over them on all ranks, the learning rate used, samples per second."""

    def __init__(self, task: Task, every: int) -> None:
        self.task, self.every = task, every
        self.running_sums = RunningSums(task)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """An epoch that is gone on with does not start."""
        self.begun, self.since = trainer.global_step, time.perf_counter()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._begin(trainer.global_step)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        self.rate = optimizer.param_groups[0]["lr"]  # after the step the schedule has moved on

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        self.running_sums.add(outputs["stats"])
        step = trainer.global_step
        if step == self.begun or step % self.every:
            return
        sums = all_reduce_sums(self.running_sums.sums, pl_module.device).tolist()
        loss, speed = sums[LOSS] / sums[SAMPLES], sums[SAMPLES] / (time.perf_counter() - self.since)
        curves = {"train/loss": loss, "lr": self.rate, "samples_per_second": speed}
        for logger in trainer.loggers:
            logger.log_metrics(curves, step=step)
        self._begin(step)

    def _begin(self, step: int) -> None:
        self.begun, self.since, self.running_sums = step, time.perf_counter(), RunningSums(self.task)


class RecordCallback(Callback):
    """Tell the record what every optimizer step did."""

    def __init__(self, recorder: Recorder, totals: EpochMetrics) -> None:
        self.recorder, self.totals = recorder, totals
        self.stepping: Optimizer | None = None

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        self.stepping = optimizer
        self.recorder.step(optimizer.param_groups[0]["lr"])

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        """After the optimizer and the schedule, and before the epoch's validation."""
        self.recorder.batch(outputs["stats"], outputs["ids"])
        if self.stepping is not None:
            self.recorder.stepped(self.stepping)
            self.stepping = None

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """After the epoch's validation, whose metrics EpochMetrics has logged."""
        epoch = trainer.current_epoch + 1
        self.recorder.end_epoch(epoch, trainer.global_step)
        if validation := {name: value for name, value in self.totals.results.items() if name.startswith("val/")}:
            self.recorder.validation(epoch, validation)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.recorder.end()


class Stopwatch(Callback):
    """Seconds of training, validation left out."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.since: float | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """An epoch that is gone on with does not start."""
        self.since = time.perf_counter()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.since = time.perf_counter()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop(pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop(pl_module)

    def _stop(self, module: pl.LightningModule) -> None:
        if self.since is not None:
            synchronize(module.device)
            self.seconds += time.perf_counter() - self.since
            self.since = None


class BroadcastBuffers(Callback):
    """Before a net is measured let all ranks have the same."""

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        broadcast_buffers(pl_module)

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        broadcast_buffers(pl_module)
