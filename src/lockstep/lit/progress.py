"""A progress bar over the whole run, in a terminal."""

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from lockstep.run_bar import RunBar

REFRESH_BATCHES = 20
"""Batches after which the bar shows the logged values anew."""


class RunBarCallback(Callback):
    """Shows a bar with what the module logs for it (`prog_bar=True`). For rank 0."""

    def __init__(self, bar: RunBar) -> None:
        self.bar = bar

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin here too: on_train_epoch_start is not called if training resumes within an epoch."""
        self.on_train_epoch_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.bar.begin(trainer.current_epoch + 1, trainer.fit_loop.epoch_loop.batch_progress.current.completed)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.bar.batch()
        if batch_idx % REFRESH_BATCHES == 0:
            self.on_train_epoch_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.bar.show({name: float(value) for name, value in trainer.progress_bar_metrics.items()})

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.bar.close()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self.bar.close()
