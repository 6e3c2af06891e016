"""A schedule that steps by a metric, between the epoch's validation and its checkpoint."""

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from lockstep.schedulers import step_plateau
from lockstep.session import Session


class PlateauStep(Callback):
    """It comes behind EpochMetrics, which sums the metric, and before CheckpointCallback."""

    def __init__(self, session: Session) -> None:
        self.plan, self.measured = session.plan, session.measured

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_last_batch:  # else trainer.max_steps has cut the epoch
            step_plateau(self.plan, trainer.lr_scheduler_configs[0].scheduler, self.measured.results)
