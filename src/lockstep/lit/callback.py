"""Tells the session where the Trainer is: the same moments at which the raw engine calls it."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from torch.optim import Optimizer

from lockstep.lit.saving import Saving, end_here
from lockstep.private_api import lightning as private
from lockstep.session.callbacks import require_planned_steps
from lockstep.session.session import Session


class SessionCallback(Callback):
    """Comes before all other callbacks. What has to come behind the module's own hook is put behind it (`follow`)."""

    def __init__(self, session: Session) -> None:
        self.session, self.progress, self.saving = session, session.progress, Saving(session)
        self.sanity_check = ExitStack()

    def follow(self, trainer: pl.Trainer) -> None:
        """Put behind hooks of the module, which may log in them, what ends a batch, a stage or an evaluation."""
        self.trainer, session, module = trainer, self.session, self.session.module
        for name, then in (
            ("on_fit_start", lambda: _restore_optimizers(session, trainer)),
            ("on_train_start", self._restore_metrics),
            ("on_train_batch_end", self._end_batch),
            ("on_train_epoch_end", self._end_training_stage),
            ("on_validation_batch_end", lambda *_: session.log.end_batch()),
            ("on_test_batch_end", lambda *_: session.log.end_batch()),
            ("on_validation_epoch_end", lambda: session.results.end_stage(trainer, "val")),
            ("on_test_epoch_end", lambda: session.results.end_stage(trainer, "test")),
            ("on_validation_end", self._end_validation),
            ("on_test_end", session.end_evaluation),
        ):
            object.__setattr__(module, name, _followed(getattr(module, name), then))

    # training

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        callbacks = trainer.callbacks  # type: ignore[attr-defined]
        require_planned_steps(self.session.plan, callbacks)
        self.session.step.watch(callbacks, trainer.optimizers, trainer.strategy.model)
        self.session.begin()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Restore the rest: Lightning has restored weights, optimizers and schedules by now."""
        self.session.watch(trainer, marks_phases=getattr(trainer.fit_loop.epoch_loop, "is_fast", False))
        self.session.restore()
        self.session.timing.begin_epoch()  # on_train_epoch_start is not called where training resumes within an epoch
        if self.progress.position.batch == 0:  # an epoch begins, and none is to be ended once more
            private.end_restart(trainer.fit_loop)

    def _restore_metrics(self) -> None:
        self.session.state.restore_metrics()
        self.trainer.accumulate_grad_batches = self.progress.batches_per_step  # a callback may have set that of epoch 0

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the epoch before only now: schedules that monitor a metric step behind its last hook."""
        self.saving.finish_epoch(trainer)
        self.session.begin_epoch()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self.session.begin_batch(batch)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        self.session.before_optimizer_step(optimizer)

    def _end_batch(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        trainer, session, progress = self.trainer, self.session, self.progress
        if trainer.fit_loop.restarting:  # else no plateau schedule would step behind the epoch that was resumed within
            private.end_restart(trainer.fit_loop)
        last = trainer.is_last_batch
        due = last or (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        session.end_batch(trainer, due, last)
        if progress.time_limit.passed:
            end_here(trainer)
        if last:  # the epoch's end saves by itself
            return
        self.saving.stop, interrupted = progress.should_stop(), progress.interrupts_epoch(trainer)
        if progress.epoch_goes_on(trainer, last) and not progress.is_validation_due(trainer, last):
            is_due = interrupted or (due and session.checkpoints.due(progress.position.steps))
            self.saving.save_within_epoch(trainer, is_due)

    def _end_training_stage(self) -> None:
        self.session.results.end_stage(self.trainer, "train")
        self.saving.epoch_ended = True

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.saving.finish_epoch(trainer)
        self.session.results.end_training()

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint |= self.session.extra_state()

    # evaluations

    def on_sanity_check_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.sanity_check.enter_context(self.session.sanity_check())

    def on_sanity_check_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.sanity_check.close()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.begin_evaluation("val")

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.begin_evaluation("test")

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, *loader: int) -> None:
        self.session.begin_evaluation_batch("val", *(loader or [0]))

    def on_test_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, *loader: int) -> None:
        self.session.begin_evaluation_batch("test", *(loader or [0]))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.log.enter("train")

    def _end_validation(self) -> None:
        """Record and save a validation within an epoch."""
        self.session.end_evaluation()
        if not self.progress.checking and self.progress.epoch_goes_on(self.trainer, self.trainer.is_last_batch):
            self.session.results.end_validation()
            self.saving.save_within_epoch(self.trainer, due=True)


def _restore_optimizers(session: Session, trainer: pl.Trainer) -> None:
    """Restore after callbacks that restore groups; Lightning loads the same again, but accepts missing states."""
    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
    session.state.restore_optimizers(trainer.optimizers, schedulers)


def _followed(hook: Callable[..., Any], then: Callable[..., None]) -> Callable[..., Any]:
    """Return a hook of the module that calls `then` behind it."""

    def followed(*arguments: Any) -> Any:
        returned = hook(*arguments)
        then(*arguments)
        return returned

    return followed
