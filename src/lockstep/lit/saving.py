"""Checkpoints as Lightning saves them, when and with what the keeper says; and training taken up from one."""

from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Checkpoint

from lockstep.checkpoint.content import Position
from lockstep.checkpoint.keeper import Keeper
from lockstep.checkpoint.reading import Start
from lockstep.ending import Stopped
from lockstep.launch.place import Place
from lockstep.lit.callbacks import Curves, Totals


class Saving(Checkpoint):
    """After every N steps, at each epoch's end, and when someone asks training to stop."""

    def __init__(self, keeper: Keeper, start: Start, totals: Totals, curves: Curves, place: Place) -> None:
        self.keeper, self.start, self.place = keeper, start, place
        self.totals, self.curves = totals, curves
        self.at = start.at

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take up what Lightning does not restore: metrics, this rank's sums, and its random numbers to come."""
        if self.start.content is not None:
            own = self.keeper.resumed(self.place.world_size)
            self.totals.results = dict(self.start.results)
            self.totals.sums["train"] = own.sums["epoch"].to(pl_module.device)
            self.curves.sums = own.sums["curve"].to(pl_module.device)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        between_steps = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if not between_steps or trainer.is_last_batch:  # the epoch's end saves by itself
            return
        step = trainer.global_step
        stop = self.place.stop.after(step)
        if stop or self.keeper.due(step):
            self._save(trainer, Position(trainer.current_epoch, batch_idx + 1, step))
        if stop:
            raise Stopped(step)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """After the epoch's validation, whose metrics Totals has summed."""
        step = trainer.global_step
        self.totals.sums["train"] = torch.zeros_like(self.totals.sums["train"])
        best_yet = self.keeper.is_best(self.totals.results)
        self._save(trainer, Position(trainer.current_epoch + 1, 0, step))
        if best_yet and trainer.is_global_zero:
            self.keeper.keep_best()
        if self.place.stop.after(step):
            raise Stopped(step)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        sums = {"epoch": self.totals.sums["train"], "curve": self.curves.sums}
        checkpoint |= self.keeper.section(self.at, self.totals.results, sums)

    def _save(self, trainer: pl.Trainer, at: Position) -> None:
        self.at = at
        for logger in trainer.loggers:
            logger.save()  # what a checkpoint says was logged is on the disk
        trainer.save_checkpoint(self.keeper.last)
