"""What happens around the steps: totals over ranks, curves, times, and what must be equal or end on every rank."""

import signal
import time
from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from torch import Tensor
from torch.optim import Optimizer

from lockstep import task
from lockstep.lit.module import Classifier
from lockstep.parallel import same_buffers
from lockstep.recorder import Recorder
from lockstep.task import Sums


class Totals(Callback):
    """Add the steps' sums over batches, then over ranks in one collective, and divide once.

    `results` holds the latest metrics in float64 (`log` rounds what it hands on to float32), `confusion` the counts of
    the latest evaluation, `trained` the number of samples trained on in this run.
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.sums: dict[str, Sums] = {}
        self.results: dict[str, float] = {}
        self.trained = 0

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.sums["train"] = self._nothing(pl_module)

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.sums["val"] = self._nothing(pl_module)

    def on_test_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.sums["test"] = self._nothing(pl_module)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        self.sums["train"] += outputs["sums"]

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any
    ) -> None:
        self.sums["val"] += outputs

    def on_test_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        self.sums["test"] += outputs

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Kept from the loggers, where `train/loss` is a curve over steps."""
        totals = self._over_ranks("train", trainer)
        self.trained += int(totals[2])
        self._log(task.means("train", totals, self.classes), trainer, pl_module)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._log(self._evaluated("val", trainer, pl_module), trainer, pl_module, *trainer.loggers)

    def on_test_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._log(self._evaluated("test", trainer, pl_module), trainer, pl_module, *trainer.loggers)

    def _nothing(self, module: pl.LightningModule) -> Sums:
        return torch.zeros(3, dtype=torch.float64, device=module.device)

    def _over_ranks(self, stage: str, trainer: pl.Trainer) -> Tensor:
        totals: Tensor = trainer.strategy.reduce(self.sums[stage], reduce_op="sum")
        return totals

    def _evaluated(self, stage: str, trainer: pl.Trainer, module: pl.LightningModule) -> Mapping[str, float]:
        metrics = task.means(stage, self._over_ranks(stage, trainer), self.classes)
        if not isinstance(module, Classifier):
            return metrics
        self.confusion = module.confusion.compute()  # over all ranks
        module.confusion.reset()
        return {**metrics, f"{stage}/f1": task.macro_f1(self.confusion)}

    def _log(
        self, metrics: Mapping[str, float], trainer: pl.Trainer, module: pl.LightningModule, *loggers: Logger
    ) -> None:
        """To the loggers at the step that training has reached: by `self.log` it would be one less."""
        self.results |= metrics
        module.log_dict(dict(metrics), logger=False, prog_bar=True)
        for logger in loggers:
            logger.log_metrics({**metrics, "epoch": trainer.current_epoch}, step=trainer.global_step)


class Curves(Callback):
    """Every N optimizer steps: the loss over them on all ranks, the learning rate used, samples per second."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.sums: Sums = torch.zeros(3, dtype=torch.float64)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """An epoch that is gone on with does not start."""
        self.begun, self.since = trainer.global_step, time.perf_counter()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._begin(trainer.global_step, pl_module.device)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        self.rate = optimizer.param_groups[0]["lr"]  # after the step the schedule has moved on

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        self.sums = self.sums + outputs["sums"]
        step = trainer.global_step
        if step == self.begun or step % self.every:
            return
        loss, _correct, count = trainer.strategy.reduce(self.sums, reduce_op="sum").tolist()
        speed = count / (time.perf_counter() - self.since)
        curves = {"train/loss": loss / count, "lr": self.rate, "samples_per_second": speed}
        for logger in trainer.loggers:
            logger.log_metrics(curves, step=step)
        self._begin(step, pl_module.device)

    def _begin(self, step: int, device: torch.device) -> None:
        self.begun, self.since = step, time.perf_counter()
        self.sums = torch.zeros(3, dtype=torch.float64, device=device)


class Recording(Callback):
    """Tell the record what every optimizer step did."""

    def __init__(self, recorder: Recorder, totals: Totals) -> None:
        self.recorder, self.totals = recorder, totals

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        self.recorder.step(optimizer.param_groups[0]["lr"])

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        self.recorder.batch(outputs["sums"], outputs["ids"])

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """After the epoch's validation, whose metrics Totals has logged."""
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
            if module.device.type == "cuda":
                torch.cuda.synchronize()  # a GPU's work is queued: the clock waits for it
            self.seconds += time.perf_counter() - self.since
            self.since = None


class SameBuffers(Callback):
    """Before validation let all ranks have the same."""

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        same_buffers(pl_module)


class OwnSigterm(Callback):
    """Let SIGTERM do what it did before: Lightning's handler, which stands by now, would broadcast to lost peers."""

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self.before = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        signal.signal(signal.SIGTERM, self.before)

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        signal.signal(signal.SIGTERM, self.before)
