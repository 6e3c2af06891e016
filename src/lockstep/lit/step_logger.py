"""Every N optimizer steps: the loss over them on all ranks, the learning rate used, samples per second."""

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from torch.optim import Optimizer

from lockstep.session import Session
from lockstep.sums.running import RunningSums


class StepLogger(Callback):
    def __init__(self, session: Session) -> None:
        self.curve, self.loggers, self.every = session.curve, session.loggers, session.plan.log_every_n_steps

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """on_train_epoch_start isn't called when resuming within an epoch."""
        self.begun = trainer.global_step
        self.curve.resume(self.curve.sums)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.begun = trainer.global_step
        self.curve.resume(RunningSums(self.curve.objective))

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        self.rate = optimizer.param_groups[0]["lr"]  # after the step the schedule has moved on

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        self.curve.add(outputs["stats"])
        step = trainer.global_step
        if step == self.begun or step % self.every:  # of a step's batches the last alone
            return
        point, self.begun = self.curve.point(self.rate), step
        self.loggers.log_metrics(point, step)
