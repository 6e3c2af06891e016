"""Training: restored from a checkpoint, each batch weighted and recorded, checkpoints and the ends of epochs."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.optim import Optimizer

from lockstep.checkpoint.saving import replace_weights
from lockstep.config_error import require
from lockstep.errors import TrainingInterrupted
from lockstep.lit.evaluation import call_after
from lockstep.lit.logged_values import widen_metrics
from lockstep.lit.session import Session
from lockstep.lit.state import RankState
from lockstep.monitor import log_histograms, work_of
from lockstep.optimizers import learning_rate
from lockstep.parallel.tensor_layout import full_state_dict
from lockstep.private_api import lightning as private
from lockstep.record.fingerprint import digest
from lockstep.targets.kinds import overrides, replace_method


class TrainingCallback(Callback):
    """Runs before all other callbacks; `attach` adds what follows the hooks of the module, which may log values.

    optimizer_steps: the rate and the gradient norms of each step of an optimizer in the batch.
    stop: whether a signal asks for the end.
    epoch_ended: whether an epoch has ended and is not saved yet.
    """

    optimizer_steps: list[tuple[float, Sequence[Tensor]]]

    def __init__(self, session: Session, state: RankState) -> None:
        self.session, self.state = session, state
        self.plan, self.progress, self.results = session.plan, session.progress, session.results
        self.stop = self.epoch_ended = False

    def attach(self, trainer: pl.Trainer) -> None:
        self.trainer, module = trainer, self.session.module
        # after callbacks that restore groups; Lightning loads the same again, but accepts missing states
        call_after(module, "on_fit_start", lambda: self.state.restore_optimizers(trainer))
        call_after(module, "on_train_start", self._after_train_start)
        if overrides(module, "on_train_batch_start"):
            replace_method(module, "on_train_batch_start", self._start_batch)
        call_after(module, "on_train_batch_end", self._end_batch)
        call_after(module, "on_train_epoch_end", self._end_stage)
        call_after(module, "on_fit_end", self.end_fit)
        call_after(module, "on_validation_end", self._end_validation)

    # before and after

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.step.watch(trainer.optimizers, trainer.strategy.model)
        self.session.begin(trainer.callbacks)  # type: ignore[attr-defined]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Restore the rest: Lightning has restored weights, optimizers and schedules by now."""
        self._watch_plateaus()
        self.state.restore()
        self.session.phases.begin_epoch()  # on_train_epoch_start is not called if training resumes within an epoch
        self.results.display.begin_epoch(self.progress.position)
        self.results.curve.point_time = time.perf_counter()
        if self.progress.position.batch == 0:  # an epoch begins, and none is to be ended once more
            private.end_restart(trainer.fit_loop)

    def _after_train_start(self) -> None:
        self.state.restore_metrics()
        self.trainer.accumulate_grad_batches = self.progress.batches_per_step  # a callback may have set that of epoch 0

    def _watch_plateaus(self) -> None:
        """Have a ReduceLROnPlateau that steps by a value of each batch get its mean over ranks, which would diverge."""
        plateaus = [config for config in self.trainer.lr_scheduler_configs if config.reduce_on_plateau]
        self.session.log.always_synced = {str(config.monitor) for config in plateaus}
        every = self.plan.checkpoint.every_n_steps
        saves_within = every is not None or self.plan.trainer.val_check_interval != 1.0
        fits = not saves_within or all(config.interval == "epoch" for config in plateaus)
        reason = "ReduceLROnPlateau steps after each batch, and a checkpoint before that would lack its last step"
        hint = "checkpoint.every_n_steps=null trainer.val_check_interval=1.0"
        require(fits, "checkpoint.every_n_steps", every, reason, hint)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._finish_epoch()

    def end_fit(self) -> None:
        """End the record, after the last hook of fit; last.ckpt gets the weights if hooks have replaced them."""
        session = self.session
        session.profiler.end()
        self.results.display.close()
        session.recorder.end()
        weights = full_state_dict(session.module)
        self.results.digest = digest(weights)
        if self.plan.saves and session.context.rank == 0:
            replace_weights(session.checkpoints.last, weights)

    def end_finished(self) -> None:
        """Restore a run that had finished training, maybe within an epoch, before it is tested."""
        self.state.restore()
        if self.progress.position.batch:
            self.progress.interrupted_epoch = True
            self.state.restore_metrics()
            self.results.reduce_stage(self.trainer, "train")
            self.results.end_stage(self.trainer, "train")
        self.end_fit()

    # a batch

    def on_train_batch_start(self, *_: Any) -> None:
        """Begin a batch that the loader has yielded and that is on its device."""
        session, progress = self.session, self.progress
        session.phases.mark("data")
        self.optimizer_steps = []
        session.step.begin(session.data.next_share("train"), progress.position, progress.batches_per_step)
        session.log.begin_batch("train", session.step.samples)

    def _start_batch(self, original: Callable[..., int | None], *arguments: Any) -> int | None:
        if (returned := original(*arguments)) == -1:  # the epoch ends here
            self.session.log.enter("train")
        return returned

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> None:
        """Measure the optimizer's gradients, which are complete, averaged over ranks, and not clipped yet."""
        step = learning_rate([optimizer]), self.session.step.gradient_norms(optimizer)
        earlier = self.optimizer_steps if self.plan.model.manual else []  # a closure may be called several times
        self.optimizer_steps = [*earlier, step]

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.results.update_step_metrics(trainer)

    def _end_batch(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        trainer, session, progress = self.trainer, self.session, self.progress
        if trainer.fit_loop.restarting:  # otherwise no plateau schedule steps after an epoch that was resumed within
            private.end_restart(trainer.fit_loop)
        is_last, batches = trainer.is_last_batch, trainer.accumulate_grad_batches
        is_step_boundary = is_last or self.plan.model.manual or (batch_idx + 1) % batches == 0
        self.results.update_step_metrics(trainer)  # with what the hooks of this batch have logged
        counted = session.step.record_batch(session.recorder)
        if self.plan.logger:
            self.results.curve.add(*counted)
        progress.position.batch += 1
        if is_step_boundary:
            self._end_step()
        session.log.enter("train")
        self.results.display.end_batch(trainer.progress_bar_metrics)
        if progress.time_limit.ends(progress.position.steps):  # as by max_steps: should_stop would validate here
            trainer.fit_loop.epoch_loop.max_steps = trainer.global_step
        session.phases.step(session.step.share.samples)
        session.profiler.end_batch()
        if is_last:  # the end of the epoch saves by itself
            position = progress.position
            self.results.work = work_of(self.plan, session.device, session.phases.end_epoch())
            log_histograms(self.plan, session.loggers, session.module, position.epochs + 1, position.steps)
            return
        self.stop, interrupts = progress.should_stop(), progress.interrupts_epoch(trainer)
        if progress.epoch_goes_on(trainer) and not progress.is_validation_due(trainer):
            is_due = interrupts or (is_step_boundary and session.checkpoints.due(progress.position.steps))
            if is_due or self.stop:
                self._save(self.stop)

    def _end_step(self) -> None:
        """Record an optimizer step, and log its values if a point of the curves is due."""
        log, recorder, position, trainer = self.session.log, self.session.recorder, self.progress.position, self.trainer
        rate = self.optimizer_steps[0][0] if self.optimizer_steps else learning_rate(trainer.optimizers)
        norms = [norm for _, norms in self.optimizer_steps for norm in norms]
        recorder.step(rate, norms, log.record_values() if log.step_values else None)
        position.steps += 1
        recorder.stepped(trainer.optimizers, trainer.is_last_batch)
        if self.plan.logger and position.steps % self.plan.log_every_n_steps == 0:
            values = log.step("logger")
            curve = {"lr": rate, **self.results.curve.point()}  # of a name that the module logs itself, its value stays
            points = {name: curve[name] for name in curve if name not in values}
            self.session.loggers.log_metrics(points, position.steps)
            self.results.to_loggers(values, position.epochs)

    # an epoch

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the previous epoch only now: schedules that monitor a metric step after its last hook."""
        self._finish_epoch()
        self.session.phases.begin_epoch()
        self.results.display.begin_epoch(self.progress.position)
        widen_metrics(self.plan, self.session.module)
        self.session.log.begin_epoch("train")
        self.results.curve.begin()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.phases.synchronize()  # a stop may have ended the epoch before its last batch
        self.results.reduce_stage(trainer, "train")

    def _end_stage(self) -> None:
        self.results.end_stage(self.trainer, "train")
        self.epoch_ended = True

    def _finish_epoch(self) -> None:
        """Record an epoch that has ended, print its line, and save a checkpoint. Not for an interrupted one."""
        if self.epoch_ended and not self.progress.interrupted_epoch:
            self.progress.ended = self.trainer.should_stop
            self.results.end_epoch()
            self._save()
            if self.progress.should_stop():
                raise TrainingInterrupted(self.progress.position.steps)
        self.epoch_ended = False

    def _end_validation(self) -> None:
        """Record and save a validation within an epoch."""
        if not self.progress.checking and self.progress.epoch_goes_on(self.trainer):
            self.results.end_validation()
            self._save(self.stop)

    def _save(self, stops: bool = False) -> None:
        """Save a checkpoint, after the values that are logged until now; then end the run if it `stops`."""
        if self.plan.saves:
            self.session.loggers.flush()
            self.trainer.save_checkpoint(self.session.checkpoints.last)
        if stops:
            raise TrainingInterrupted(self.progress.position.steps)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint |= self.state.saved()
