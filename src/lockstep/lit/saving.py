"""Checkpoints as Lightning saves them, when and with what the session says; and training resumed from one."""

from dataclasses import replace
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint

from lockstep.checkpoint.content import Progress
from lockstep.errors import TrainingInterrupted
from lockstep.session import Session


class CheckpointCallback(Checkpoint):
    """After every N steps, at each epoch's end, and when someone asks training to stop."""

    def __init__(self, session: Session) -> None:
        self.session, self.at, self.stop = session, replace(session.start.at), False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Restore what Lightning does not."""
        self.session.restore()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.at = Progress(trainer.current_epoch, batch_idx + 1, trainer.global_step)
        over = self.session.ends_after(self.at)
        if over:
            end_here(trainer)
        if trainer.is_last_batch:  # the epoch's end saves by itself
            return
        stop = self.session.should_stop(self.at)
        if self.session.plan.validates_after(trainer.current_epoch + 1, batch_idx + 1):
            self.stop = stop  # behind the validation
            return
        stepped = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if stop or over or (stepped and self.session.checkpoints.due(self.at.steps)):
            self._save(trainer)
        if stop:
            raise TrainingInterrupted(self.at.steps)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Within an epoch: EpochMetrics has summed and recorded it."""
        if trainer.is_last_batch or trainer.sanity_checking:
            return
        self._save(trainer)
        if self.stop:
            raise TrainingInterrupted(self.at.steps)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """After the epoch's validation, whose metrics EpochMetrics has summed."""
        if not trainer.is_last_batch:  # trainer.max_steps: it is saved
            return
        self.at = Progress(trainer.current_epoch + 1, 0, trainer.global_step)
        self.session.update_best(self.at.epochs)
        self._save(trainer)
        if self.session.should_stop(self.at):
            raise TrainingInterrupted(self.at.steps)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint |= self.session.extra_state(self.at)

    def _save(self, trainer: pl.Trainer) -> None:
        if not self.session.plan.saves:
            return
        self.session.loggers.flush()
        trainer.save_checkpoint(self.session.checkpoints.last)


def end_here(trainer: pl.Trainer) -> None:
    """Training ends behind this batch, as by max_steps: a stop that is asked for would validate the epoch's part."""
    trainer.fit_loop.epoch_loop.max_steps = trainer.global_step
