"""Tells the session where the Trainer is, and hands on what the module has logged."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from torch.optim import Optimizer

from lockstep.errors import TrainingInterrupted
from lockstep.lit.saving import end_here
from lockstep.own_module.callbacks import require_planned_steps
from lockstep.own_module.session import ModuleSession
from lockstep.private_api import lightning as private
from lockstep.progress import epoch_line, shows_bar


class Following(Callback):
    """Before all other callbacks. What has to come behind the module's own hook is put behind it (`follow`)."""

    def __init__(self, session: ModuleSession) -> None:
        self.session, self.stop = session, False
        self.epoch_began, self.epoch_ended = time.perf_counter(), False

    def follow(self, trainer: pl.Trainer) -> None:
        """The module logs in these hooks too."""
        self.trainer, module = trainer, self.session.module
        object.__setattr__(module, "optimizers", self.session.stepless(module.optimizers))
        for name, then in (
            ("on_fit_start", self._restore_groups),
            ("on_train_start", self.session.state.restore_metrics),
            ("on_train_start", partial(self.session.restore_accumulation, trainer)),
            ("on_train_batch_end", self._batch_done),
            ("on_train_epoch_end", self._epoch_done),
            ("on_validation_batch_end", self._evaluated),
            ("on_test_batch_end", self._evaluated),
            ("on_validation_epoch_end", self._validation_done),
            ("on_test_epoch_end", self._test_done),
            ("on_validation_end", self.session.end_evaluation),
            ("on_validation_end", self._validation_over),
            ("on_test_end", self.session.end_evaluation),
        ):
            object.__setattr__(module, name, _followed(getattr(module, name), then))

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        require_planned_steps(self.session.plan, trainer.callbacks)  # type: ignore[attr-defined]
        self.session.weights.wrap_callbacks(trainer.callbacks)  # type: ignore[attr-defined]
        self.session.weights.take_optimizers(trainer.optimizers)
        self.session.begin()

    def _restore_groups(self) -> None:
        """Behind callbacks that restore their own, before Lightning loads the optimizers."""
        self.session.state.restore_groups(self.trainer.optimizers)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Lightning has restored weights, optimizers and schedules by now."""
        self.session.watch(trainer.optimizers, trainer.lr_scheduler_configs, trainer.strategy.model)
        self.session.restore()
        if self.session.at.batch == 0:  # an epoch begins, and none is to be ended once more
            private.end_restart(trainer.fit_loop)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The epoch before is saved only now: schedules that monitor a metric step behind its last hook."""
        self._finish_epoch()
        self.session.begin_epoch()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._finish_epoch()
        self.session.end_training()

    def _finish_epoch(self) -> None:
        """Of an epoch that has ended, the record, its line, a checkpoint."""
        session, now = self.session, time.perf_counter()
        if self.epoch_ended and not session.cut:  # else the checkpoint of its part is saved
            session.ended = self.trainer.should_stop
            session.end_epoch()
            if self.trainer.is_global_zero and not shows_bar(session.plan.trainer.enable_progress_bar):
                seconds = now - self.epoch_began
                print(epoch_line(session.at.epochs, session.plan.max_epochs, session.results, seconds), flush=True)
            self._save()
            if session.should_stop():
                raise TrainingInterrupted(session.at.steps)
        self.epoch_ended, self.epoch_began = False, time.perf_counter()

    def _save(self) -> None:
        if not self.session.plan.saves:
            return
        self.session.loggers.flush()  # what a checkpoint says was logged is on the disk
        self.trainer.save_checkpoint(self.session.last)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint |= self.session.extra_state()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self.session.begin_batch(batch)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        self.session.before_optimizer_step(optimizer)

    def _batch_done(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        trainer, session = self.trainer, self.session
        if trainer.fit_loop.restarting:  # else no plateau schedule would step behind the epoch that was resumed within
            private.end_restart(trainer.fit_loop)
        last = trainer.is_last_batch
        due = (batch_idx + 1) % trainer.accumulate_grad_batches == 0 or last
        session.end_batch(trainer, due, last)
        if session.time_limit.passed:
            end_here(trainer)
        if last:  # the epoch's end saves by itself
            return
        self.stop, cut = session.should_stop(), session.cuts_epoch(trainer)
        if not session.goes_on(trainer, last) or session.validates_here(trainer, last):
            return
        self._save_within(cut or (due and session.checkpoints.due(session.at.steps)))

    def _save_within(self, due: bool) -> None:
        """An epoch, and end the run where somebody asked."""
        if self.stop or due:
            self._save()
        if self.stop:
            raise TrainingInterrupted(self.session.at.steps)

    def _epoch_done(self) -> None:
        self.session.end_stage(self.trainer, "train")
        self.epoch_ended = True

    def on_sanity_check_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.begin_check()

    def on_sanity_check_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.end_check()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.begin_evaluation("val")

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.begin_evaluation("test")

    def on_validation_batch_start(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self.session.begin_evaluation_batch("val", dataloader_idx)

    def on_test_batch_start(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self.session.begin_evaluation_batch("test", dataloader_idx)

    def _evaluated(self, *_: Any) -> None:
        """A batch. What is logged behind the last is of no single loader."""
        self.session.logged.end_batch()

    def _validation_done(self) -> None:
        self.session.end_stage(self.trainer, "val")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.logged.enter("train")

    def _validation_over(self) -> None:
        if not self.session.checking and self.session.goes_on(self.trainer, self.trainer.is_last_batch):
            self.session.end_validation()
            self._save_within(due=True)

    def _test_done(self) -> None:
        self.session.end_stage(self.trainer, "test")


def _followed(hook: Callable[..., Any], then: Callable[..., None]) -> Callable[..., Any]:
    """A hook of the module, and what comes behind it."""

    def followed(*arguments: Any) -> Any:
        returned = hook(*arguments)
        then(*arguments)
        return returned

    return followed
