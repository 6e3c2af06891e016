"""What rank 0 shows while it trains: a bar over the run in a terminal, a line an epoch elsewhere."""

import time
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from lockstep.progress import epoch_line, shows_bar
from lockstep.run_bar import RunBar

REFRESH_STEPS = 20
"""Batches from one look at the values that a module logs to the next."""


class EpochLines(Callback):
    """A line for each epoch, on rank 0."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """on_train_epoch_start isn't called when resuming within an epoch."""
        self.since = time.perf_counter()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.since = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        seconds = time.perf_counter() - self.since
        print(epoch_line(trainer.current_epoch + 1, trainer.max_epochs or 0, metrics, seconds), flush=True)


class BarOfRun(Callback):
    """On rank 0; `own`: the module logs what it wants beside the bar (`prog_bar=True`)."""

    def __init__(self, own: bool) -> None:
        self.own = own
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
            if self.own and batch_idx % REFRESH_STEPS == 0:
                self._show(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._show(trainer)

    def _show(self, trainer: pl.Trainer) -> None:
        values = trainer.progress_bar_metrics if self.own else trainer.callback_metrics
        if self.bar is not None:
            self.bar.show({name: float(value) for name, value in values.items()})

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._close()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def create_progress(bar: bool | None, own: bool = False) -> Callback:
    """own: the module is a user's."""
    return BarOfRun(own) if shows_bar(bar) else EpochLines()
