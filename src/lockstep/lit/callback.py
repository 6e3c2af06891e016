"""Calls the session at the same moments of training as the raw engine does."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from torch.optim import Optimizer

from lockstep.errors import TrainingInterrupted
from lockstep.parallel.messages import broadcast_buffers
from lockstep.private_api import lightning as private
from lockstep.session.session import Session
from lockstep.targets.kinds import overrides, replace_method


class StageCallback(Callback):
    """Calls the session in each stage, before all other callbacks."""

    session: Session

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.begin_evaluation(stage_of(trainer))

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self.session.begin_evaluation_batch(stage_of(trainer), batch_idx, dataloader_idx)

    def on_validation_batch_end(self, trainer: pl.Trainer, *_: Any, **__: Any) -> None:
        self.session.results.update_step_metrics(trainer)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.before_epoch_end(trainer, stage_of(trainer))

    on_test_start, on_test_batch_start = on_validation_start, on_validation_batch_start
    on_train_batch_end = on_test_batch_end = on_validation_batch_end
    on_train_epoch_end = on_test_epoch_end = on_validation_epoch_end


class SessionCallback(StageCallback):
    """Calls the session in training. `attach` wraps hooks of the module for what has to run after them.

    stop: whether a signal asks for the end.
    epoch_ended: whether an epoch has ended and is not saved yet.
    """

    def __init__(self, session: Session) -> None:
        self.session, self.progress = session, session.progress
        self.sanity_check = ExitStack()
        self.stop = self.epoch_ended = False

    def attach(self, trainer: pl.Trainer) -> None:
        """End batches, stages and evaluations after the module's own hooks, which may log values."""
        self.trainer, session, module = trainer, self.session, self.session.module
        # after callbacks that restore groups; Lightning loads the same again, but accepts missing states
        _call_after(module, "on_fit_start", lambda: session.state.restore_optimizers(trainer))
        _call_after(module, "on_train_start", self._restore_metrics)
        if overrides(module, "on_train_batch_start"):
            replace_method(module, "on_train_batch_start", self._start_batch)
        _call_after(module, "on_train_batch_end", self._end_batch)
        _call_after(module, "on_train_epoch_end", self._end_training_stage)
        _call_after(module, "on_fit_end", session.end_fit)
        for name in ("validation", "test"):
            _call_after(module, f"on_{name}_epoch_start", lambda: broadcast_buffers(module))
            _call_after(module, f"on_{name}_batch_end", lambda *_: session.log.enter(stage_of(trainer)))
            _call_after(module, f"on_{name}_epoch_end", lambda: session.results.end_stage(trainer, stage_of(trainer)))
        _call_after(module, "on_validation_end", self._end_validation)
        _call_after(module, "on_test_end", lambda: session.end_evaluation("test"))

    # training

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.step.watch(trainer.optimizers, trainer.strategy.model)
        self.session.begin(trainer.callbacks)  # type: ignore[attr-defined]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Restore the rest: Lightning has restored weights, optimizers and schedules by now."""
        self.session.watch(trainer)
        self.session.restore()
        self.session.phases.begin_epoch()  # on_train_epoch_start is not called if training resumes within an epoch
        self.session.results.display.begin_epoch(self.progress.position)
        if self.progress.position.batch == 0:  # an epoch begins, and none is to be ended once more
            private.end_restart(trainer.fit_loop)

    def _restore_metrics(self) -> None:
        self.session.state.restore_metrics()
        self.trainer.accumulate_grad_batches = self.progress.batches_per_step  # a callback may have set that of epoch 0

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the previous epoch only now: schedules that monitor a metric step after its last hook."""
        self._finish_epoch()
        self.session.begin_epoch()

    def on_train_batch_start(self, *_: Any) -> None:
        self.session.begin_batch()

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> None:
        self.session.before_optimizer_step(optimizer)

    def _start_batch(self, original: Callable[..., int | None], *arguments: Any) -> int | None:
        if (returned := original(*arguments)) == -1:  # the epoch ends here
            self.session.log.enter("train")
        return returned

    def _end_batch(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        trainer, session, progress = self.trainer, self.session, self.progress
        if trainer.fit_loop.restarting:  # otherwise no plateau schedule steps after an epoch that was resumed within
            private.end_restart(trainer.fit_loop)
        is_last = trainer.is_last_batch
        is_step_boundary = is_last or (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        session.end_batch(trainer, is_step_boundary, is_last)
        if progress.time_limit.passed:  # end as by max_steps: should_stop would validate the interrupted epoch
            trainer.fit_loop.epoch_loop.max_steps = trainer.global_step
        if is_last:  # the end of the epoch saves by itself
            return
        self.stop, interrupts = progress.should_stop(), progress.interrupts_epoch(trainer)
        if progress.epoch_goes_on(trainer, is_last) and not progress.is_validation_due(trainer, is_last):
            is_due = interrupts or (is_step_boundary and session.checkpoints.due(progress.position.steps))
            if is_due or self.stop:
                self._save(self.stop)

    def _end_training_stage(self) -> None:
        self.session.results.end_stage(self.trainer, "train")
        self.epoch_ended = True

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._finish_epoch()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint |= self.session.extra_state()

    def _finish_epoch(self) -> None:
        """Record an epoch that has ended, print its line, and save a checkpoint. Not for an interrupted one."""
        if self.epoch_ended and not self.progress.interrupted_epoch:
            self.progress.ended = self.trainer.should_stop
            self.session.results.end_epoch()
            self._save()
            if self.progress.should_stop():
                raise TrainingInterrupted(self.progress.position.steps)
        self.epoch_ended = False

    def _save(self, stops: bool = False) -> None:
        """Save a checkpoint, after the values that are logged until now; then end the run if it `stops`."""
        if self.session.plan.saves:
            self.session.loggers.flush()
            self.trainer.save_checkpoint(self.session.checkpoints.last)
        if stops:
            raise TrainingInterrupted(self.progress.position.steps)

    # evaluations

    def on_sanity_check_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.sanity_check.enter_context(self.session.sanity_check())

    def on_sanity_check_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.sanity_check.close()

    def _end_validation(self) -> None:
        """End an evaluation; record and save it if it was within an epoch."""
        self.session.end_evaluation("val")
        if not self.progress.checking and self.progress.epoch_goes_on(self.trainer, self.trainer.is_last_batch):
            self.session.results.end_validation()
            self._save(self.stop)


def stage_of(trainer: pl.Trainer) -> str:
    """Return `train`, `val` or `test`."""
    return trainer.state.stage.dataloader_prefix  # type: ignore[return-value, union-attr]


def _call_after(module: pl.LightningModule, name: str, function: Callable[..., None]) -> None:
    """Wrap a hook of the module so that `function` is called after it, with the same arguments."""

    def hook(original: Callable[..., Any], *arguments: Any) -> Any:
        returned = original(*arguments)
        function(*arguments)
        return returned

    replace_method(module, name, hook)
