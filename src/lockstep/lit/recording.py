"""Records every optimizer step."""

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from torch.optim import Optimizer

from lockstep.session import Session


class RecordCallback(Callback):
    """It comes behind EpochMetrics, whose results it writes down."""

    def __init__(self, session: Session) -> None:
        self.recorder, self.measured, self.counts = session.recorder, session.measured, session.counts
        self.validates_after = session.plan.validates_after
        self.stepping: Optimizer | None = None

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        self.stepping = optimizer
        self.counts.weigh(self.recorder.parameters)
        self.recorder.step(optimizer.param_groups[0]["lr"])

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        """After the optimizer and the schedule, and before the epoch's validation."""
        self.recorder.batch(outputs["stats"], outputs["ids"])
        if self.stepping is not None:
            self.recorder.stepped(self.stepping)
            self.stepping = None

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """After the epoch's validation."""
        if not trainer.is_last_batch:  # trainer.max_steps: the checkpoint has written it
            return
        epoch = trainer.current_epoch + 1
        self.recorder.end_epoch(epoch, trainer.global_step)
        if not self.validates_after(epoch):
            return
        if validation := {name: value for name, value in self.measured.results.items() if name.startswith("val/")}:
            self.recorder.validation(epoch, validation)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.recorder.end()
