"""The steps' sums become metrics: over batches, then over ranks in one collective, divided once."""

from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from lockstep.checkpoint.content import Progress
from lockstep.session import Session


class EpochMetrics(Callback):
    """The metrics stay in the session in float64, and go to the loggers at the step that training has reached: `log`
    rounds what it hands on to float32, and writes one step before.
    """

    def __init__(self, session: Session) -> None:
        self.session, self.measured = session, session.measured
        self.epoch_done = False  # whether the training epoch's sums have met those of the other ranks

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        self.measured.epoch.add(outputs["stats"])
        if trainer.is_last_batch:
            self.session.monitor.end_steps(trainer.current_epoch + 1)

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.evaluation = self.session.begin_evaluation("val")

    def on_test_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.evaluation = self.session.begin_evaluation("test")

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        self.evaluation.add(outputs["stats"], outputs["outputs"], batch.targets, batch.inputs)

    def on_test_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        self.evaluation.add(outputs["stats"], outputs["outputs"], batch.targets, batch.inputs)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Of the training epoch too, which ends after its validation; unless it is one within the epoch."""
        if trainer.sanity_checking:
            return
        if not trainer.is_last_batch:
            at = Progress(trainer.current_epoch, trainer.fit_loop.batch_idx + 1, trainer.global_step)
            within = self.session.end_validation(at, self.evaluation.totals)
            pl_module.log_dict({**within}, logger=False, prog_bar=True)
            return
        found = self._end_epoch(self.evaluation.totals)
        pl_module.log_dict({**found}, logger=False, prog_bar=True)
        self.session.log_epoch(found, trainer.current_epoch, trainer.global_step)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Kept from the loggers, where `train/loss` is a curve over steps."""
        if not self.epoch_done:
            self._end_epoch(None)
            if trainer.is_last_batch:  # else trainer.max_steps has cut it
                self.session.log_epoch({}, trainer.current_epoch, trainer.global_step)
        self.epoch_done = False
        trained = {name: value for name, value in self.measured.results.items() if name.startswith("train/")}
        pl_module.log_dict(trained, logger=False, prog_bar=True)

    def on_test_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        found = self.session.end_test(self.evaluation.totals)
        pl_module.log_dict(found, logger=False, prog_bar=True)
        self.session.loggers.log_metrics({**found, "epoch": trainer.current_epoch}, trainer.global_step)

    def _end_epoch(self, validated: Tensor | None) -> Mapping[str, float]:
        self.epoch_done = True
        return self.measured.end_epoch(validated)
