"""When the Lightning engine saves a checkpoint: at an epoch's end, and within it where one is due."""

import time

import lightning.pytorch as pl

from lockstep.errors import TrainingInterrupted
from lockstep.progress import epoch_line, shows_bar
from lockstep.session.session import Session


class Saving:
    """`stop`: whether someone asked for the end of training; `epoch_ended`: whether an epoch has still to be saved."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.stop = self.epoch_ended = False
        self.epoch_began = time.perf_counter()

    def finish_epoch(self, trainer: pl.Trainer) -> None:
        """Record an epoch that has ended, print its line, save a checkpoint."""
        session, progress = self.session, self.session.progress
        if self.epoch_ended and not progress.interrupted_epoch:  # else the checkpoint of its part is saved
            seconds = time.perf_counter() - self.epoch_began
            progress.ended = trainer.should_stop
            session.results.end_epoch()
            if trainer.is_global_zero and not shows_bar(session.plan.trainer.enable_progress_bar):
                epochs, results = session.plan.max_epochs, session.results.values
                print(epoch_line(progress.position.epochs, epochs, results, seconds), flush=True)
            self.save(trainer)
            if progress.should_stop():
                raise TrainingInterrupted(progress.position.steps)
        self.epoch_ended, self.epoch_began = False, time.perf_counter()

    def save(self, trainer: pl.Trainer) -> None:
        if self.session.plan.saves:
            self.session.loggers.flush()  # what a checkpoint says was logged is on the disk
            trainer.save_checkpoint(self.session.checkpoints.last)

    def save_within_epoch(self, trainer: pl.Trainer, due: bool) -> None:
        """Save if a checkpoint is due or someone asked to stop; then end the run."""
        if self.stop or due:
            self.save(trainer)
        if self.stop:
            raise TrainingInterrupted(self.session.progress.position.steps)


def end_here(trainer: pl.Trainer) -> None:
    """End training behind this batch, as by max_steps: a stop that is asked for would validate the epoch's part."""
    trainer.fit_loop.epoch_loop.max_steps = trainer.global_step
