"""A bar over the run in a terminal."""

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from lockstep.run_bar import RunBar

REFRESH_STEPS = 20
"""Batches from one look at the values that a module logs to the next."""


class BarOfRun(Callback):
    """A bar over the whole run, on rank 0, with what the module logs for it (`prog_bar=True`)."""

    def __init__(self) -> None:
        self.bar: RunBar | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            self.bar = RunBar(trainer.max_epochs or 0, trainer.num_training_batches)
            self._begin(trainer)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._begin(trainer)

    def _begin(self, trainer: pl.Trainer) -> None:
        if self.bar is not None:
            self.bar.begin(trainer.current_epoch + 1, trainer.fit_loop.epoch_loop.batch_progress.current.completed)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.bar is not None:
            self.bar.batch()
            if batch_idx % REFRESH_STEPS == 0:
                self._show(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._show(trainer)

    def _show(self, trainer: pl.Trainer) -> None:
        if self.bar is not None:
            self.bar.show({name: float(value) for name, value in trainer.progress_bar_metrics.items()})

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._close()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.close()
