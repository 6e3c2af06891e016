"""What rank 0 shows while it trains: a bar in a terminal, a line an epoch elsewhere."""

import time

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, TQDMProgressBar

from lockstep.progress import epoch_line, shows_bar

REFRESH_STEPS = 20


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


def create_progress(bar: bool | None) -> Callback:
    """tqdm's bar, by name: Lightning would take rich's where it is installed, which is slower at small steps."""
    return TQDMProgressBar(refresh_rate=REFRESH_STEPS) if shows_bar(bar) else EpochLines()
