"""When the Lightning engine saves a checkpoint: at the end of an epoch, and within it if one is due."""

import lightning.pytorch as pl

from lockstep.errors import TrainingInterrupted
from lockstep.session.session import Session


class Saving:
    """Saves checkpoints for the Lightning engine.

    stop: whether a signal asks for the end.
    epoch_ended: whether an epoch has ended and is not saved yet.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.stop = self.epoch_ended = False

    def finish_epoch(self, trainer: pl.Trainer) -> None:
        """Record an epoch that has ended, print its line, and save a checkpoint. Not for an interrupted one."""
        session, progress = self.session, self.session.progress
        if self.epoch_ended and not progress.interrupted_epoch:
            progress.ended = trainer.should_stop
            session.results.end_epoch()
            self.save(trainer)
            if progress.should_stop():
                raise TrainingInterrupted(progress.position.steps)
        self.epoch_ended = False

    def save(self, trainer: pl.Trainer) -> None:
        """Save a checkpoint, after the values that are logged until now."""
        if self.session.plan.saves:
            self.session.loggers.flush()
            trainer.save_checkpoint(self.session.checkpoints.last)

    def save_within_epoch(self, trainer: pl.Trainer, is_due: bool) -> None:
        """Save if a checkpoint is due or a signal has asked to stop; then end the run."""
        if self.stop or is_due:
            self.save(trainer)
        if self.stop:
            raise TrainingInterrupted(self.session.progress.position.steps)
