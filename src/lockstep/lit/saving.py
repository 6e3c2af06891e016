"""Checkpoints as Lightning saves them, when and with what the keeper says; and training taken up from one."""

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint

from lockstep.checkpoint.content import Position
from lockstep.checkpoint.keeper import Keeper
from lockstep.checkpoint.reading import Start
from lockstep.ending import Stopped
from lockstep.launch.place import Place
from lockstep.lit.callbacks import Curves, Totals
from lockstep.lit.module import Supervised
from lockstep.task import Tally


class Saving(Checkpoint):
    """After every N steps, at each epoch's end, and when someone asks training to stop."""

    def __init__(self, keeper: Keeper, start: Start, totals: Totals, curves: Curves, place: Place) -> None:
        self.keeper, self.start, self.place = keeper, start, place
        self.totals, self.curves = totals, curves
        self.at = start.at

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take up what Lightning does not restore: metrics, and what is this rank's own."""
        content = self.start.content
        if content is not None and isinstance(pl_module, Supervised):
            sums = self.keeper.take_up(content, pl_module.net)
            self.totals.results, self.totals.trained = dict(content.results), -content.samples
            self.totals.training, self.curves.tally = Tally(sums["epoch"]), Tally(sums["curve"])

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.is_last_batch:  # the epoch's end saves by itself
            return
        step, stepped = trainer.global_step, (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        stop = self._asked_to_stop(trainer.current_epoch, batch_idx + 1)
        if stop or (stepped and self.keeper.due(step)):
            self._save(trainer, Position(trainer.current_epoch, batch_idx + 1, step))
        if stop:
            raise Stopped(step)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """After the epoch's validation, whose metrics Totals has summed."""
        step = trainer.global_step
        self.totals.training = Tally()
        self.keeper.judge(self.totals.results)
        self._save(trainer, Position(trainer.current_epoch + 1, 0, step))
        if self._asked_to_stop(trainer.current_epoch + 1, 0):
            raise Stopped(step)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        sums = {"epoch": self.totals.training.sums, "curve": self.curves.tally.sums}
        assert isinstance(pl_module, Supervised)
        checkpoint |= self.keeper.section(self.at, self.totals.results, sums, pl_module.net)

    def _asked_to_stop(self, epochs: int, batch: int) -> bool:
        return self.place.stop.after(self.keeper.plan.batches_before(epochs, batch))

    def _save(self, trainer: pl.Trainer, at: Position) -> None:
        self.at = at
        for logger in trainer.loggers:
            logger.save()  # what a checkpoint says was logged is on the disk
        trainer.save_checkpoint(self.keeper.last)
