"""Seconds of training, validation left out."""

import time

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from lockstep.parallel.synchronize import synchronize


class Stopwatch(Callback):
    def __init__(self) -> None:
        self.seconds = 0.0
        self.since: float | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin here: on_train_epoch_start is not called when training resumes within an epoch."""
        self.since = time.perf_counter()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.since = time.perf_counter()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop(pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Go on timing if training goes on within the epoch."""
        if not trainer.is_last_batch:
            self.since = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop(pl_module)

    def _stop(self, module: pl.LightningModule) -> None:
        if self.since is not None:
            synchronize(module.device)
            self.seconds += time.perf_counter() - self.since
            self.since = None
