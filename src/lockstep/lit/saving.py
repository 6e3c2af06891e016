"""Checkpoints as Lightning saves them, when and with what the keeper says; and training taken up from one."""

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint

from lockstep.checkpoint.content import Progress
from lockstep.checkpoint.reading import ResumeState
from lockstep.checkpoint.saving import CheckpointManager
from lockstep.errors import TrainingInterrupted
from lockstep.launch.topology import RankContext
from lockstep.lit.callbacks import EpochMetrics, StepLogger
from lockstep.lit.module import Supervised
from lockstep.running_sums import RunningSums


class CheckpointCallback(Checkpoint):
    """After every N steps, at each epoch's end, and when someone asks training to stop."""

    def __init__(
        self,
        manager: CheckpointManager,
        start: ResumeState,
        totals: EpochMetrics,
        curves: StepLogger,
        context: RankContext,
    ) -> None:
        self.manager, self.start, self.context = manager, start, context
        self.totals, self.curves = totals, curves
        self.at = start.at

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take up what Lightning does not restore: metrics, and what is this rank's own."""
        content = self.start.content
        if content is not None and isinstance(pl_module, Supervised):
            sums = self.manager.restore(content, pl_module.net)
            self.totals.results, self.totals.trained = dict(content.results), -content.samples
            self.totals.training, self.curves.running_sums = (
                RunningSums(pl_module.task, sums[name]) for name in ("epoch", "curve")
            )

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.is_last_batch:  # the epoch's end saves by itself
            return
        step, stepped = trainer.global_step, (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        stop = self._asked_to_stop(trainer.current_epoch, batch_idx + 1)
        if stop or (stepped and self.manager.due(step)):
            self._save(trainer, Progress(trainer.current_epoch, batch_idx + 1, step))
        if stop:
            raise TrainingInterrupted(step)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """After the epoch's validation, whose metrics EpochMetrics has summed."""
        step = trainer.global_step
        self.totals.training = RunningSums(self.totals.task)
        self.manager.update_best(self.totals.results)
        self._save(trainer, Progress(trainer.current_epoch + 1, 0, step))
        if self._asked_to_stop(trainer.current_epoch + 1, 0):
            raise TrainingInterrupted(step)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        sums = {"epoch": self.totals.training.sums, "curve": self.curves.running_sums.sums}
        assert isinstance(pl_module, Supervised)
        checkpoint |= self.manager.extra_state(self.at, self.totals.results, sums, pl_module.net)

    def _asked_to_stop(self, epochs: int, batch: int) -> bool:
        return self.context.stop.should_stop(self.manager.plan.batches_before(epochs, batch))

    def _save(self, trainer: pl.Trainer, at: Progress) -> None:
        self.at = at
        for logger in trainer.loggers:
            logger.save()  # what a checkpoint says was logged is on the disk
        trainer.save_checkpoint(self.manager.last)
