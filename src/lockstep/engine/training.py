"""Training: each batch is weighted and recorded; epochs, checkpoints, and what a run restores from one."""

from collections.abc import Callable, Sequence
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.optim import Optimizer

from lockstep.base.config_error import require
from lockstep.base.errors import TrainingInterrupted
from lockstep.base.messages import broadcast
from lockstep.base.optimizers import learning_rate
from lockstep.base.private_api import lightning as private
from lockstep.engine.evaluation import EvaluationCallback
from lockstep.engine.logged_values import widen_metrics
from lockstep.engine.session import Session
from lockstep.engine.state import RankState
from lockstep.plan.targets.kinds import replace_method
from lockstep.runs.checkpoint.saving import replace_weights
from lockstep.runs.machine_report import work_of
from lockstep.runs.record.fingerprint import digest
from lockstep.strategies.parallel.tensor_layout import full_state_dict


class BatchCallback(Callback):
    """Weights and records each batch of training. Runs before other callbacks; `end` follows a hook, see `attach`.

    steps: the rate and the gradient norms of each step of an optimizer in the batch.
    """

    steps: list[tuple[float, Sequence[Tensor]]]

    def __init__(self, session: Session) -> None:
        self.session, self.plan, self.results = session, session.plan, session.results
        self.progress = session.progress

    def on_train_batch_start(self, *_: Any) -> None:
        """Begin a batch that the loader has yielded and that is on its device."""
        session, progress = self.session, self.progress
        session.phases.mark("data")
        self.steps = []
        session.step.begin(session.data.next_share("train"), progress.position)
        session.log.begin_batch("train", session.step.counted)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> None:
        """Measure the optimizer's gradients, which are complete, averaged over ranks, and not clipped yet."""
        step = learning_rate([optimizer]), self.session.step.gradient_norms(optimizer)
        earlier = self.steps if self.plan.model.manual else []  # an optimizer may call its closure several times
        self.steps = [*earlier, step]

    def on_train_batch_end(self, *_: Any) -> None:
        self.results.update_step_metrics()

    def end(self, *_: Any) -> None:
        """Record and show a batch, after the steps of optimizers and schedules and all hooks."""
        session, results, position, trainer = self.session, self.results, self.progress.position, self.session.trainer
        results.update_step_metrics()  # with what the hooks of this batch have logged
        counted = session.step.record_batch(session.recorder)
        if self.plan.logger:
            results.curve.add(*counted)
        position.batch += 1
        if ends_step(trainer, position.batch):
            self._end_step(trainer)
        session.log.enter("train")
        session.phases.end_batch(session.step.share.samples)
        if trainer.is_last_batch:
            results.work = work_of(session.device, session.phases.end_epoch())

    def _end_step(self, trainer: pl.Trainer) -> None:
        """Record an optimizer step, and log its values if a point of the curves is due."""
        session, position = self.session, self.progress.position
        rate = self.steps[0][0] if self.steps else learning_rate(trainer.optimizers)
        norms = [norm for _, norms in self.steps for norm in norms]
        session.recorder.step(rate, norms, session.log.record_values() if session.log.step_values else None)
        position.steps += 1
        session.recorder.stepped(trainer.optimizers, trainer.is_last_batch)
        if self.plan.logger and position.steps % self.plan.log_every_n_steps == 0:
            values = session.log.step("logger")
            curve = {"lr": rate, **self.results.curve.point()}  # of a name that the module logs itself, its value stays
            points = {name: curve[name] for name in curve if name not in values}
            session.loggers.log_metrics(points, position.steps)
            self.results.to_loggers(values, position.epochs)


def ends_step(trainer: Any, batches: int) -> bool:
    """Whether an optimizer steps after so many batches of an epoch; with manual optimization each batch counts."""
    is_manual = not trainer.lightning_module.automatic_optimization
    return trainer.is_last_batch or is_manual or batches % trainer.accumulate_grad_batches == 0


class TrainingCallback(Callback):
    """Restores a run, ends its epochs and saves its checkpoints; its methods follow hooks, see `attach`.

    stop: whether a signal asks for the end.
    epoch_ended: whether an epoch has ended and is not saved yet.
    """

    def __init__(self, session: Session, state: RankState) -> None:
        self.session, self.state = session, state
        self.plan, self.progress, self.results = session.plan, session.progress, session.results
        self.stop = self.epoch_ended = False

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.step.prepare(trainer.optimizers, trainer.strategy.model)
        self.session.begin(trainer.callbacks)  # type: ignore[attr-defined]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Restore the rest: Lightning has restored weights, optimizers and schedules by now."""
        self._watch_plateaus()
        self.state.restore()
        self.results.begin_epoch()  # on_train_epoch_start is not called if training resumes within an epoch
        if self.progress.position.batch == 0:  # an epoch begins, and none is to be ended once more
            private.end_restart(trainer.fit_loop)

    def _watch_plateaus(self) -> None:
        """Have a ReduceLROnPlateau get means over ranks, which would diverge; raise if one steps after each batch."""
        for config in self.session.trainer.lr_scheduler_configs:
            if config.reduce_on_plateau:
                self.session.log.always_synced.add(str(config.monitor))
                reason, hint = "it steps after each batch", "one with interval: epoch"
                require(config.interval == "epoch", "scheduler", type(config.scheduler).__name__, reason, hint)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._finish_epoch()

    def end_fit(self) -> None:
        """End the record, after the last hook of fit; last.ckpt gets the weights if hooks have replaced them."""
        session = self.session
        session.recorder.end()
        weights = full_state_dict(session.module)
        self.results.digest = digest(weights)
        if session.context.rank == 0:
            replace_weights(session.last_checkpoint, weights)

    def end_finished(self) -> None:
        """Restore a run that had finished training, maybe within an epoch, before it is tested."""
        self.state.restore()
        if self.progress.position.batch:
            self.progress.interrupted_epoch = True
            self.state.restore_metrics()
            self.results.reduce_stage("train")
            self.results.end_stage("train")
        self.end_fit()

    def save_if_due(self, *_: Any) -> None:
        """Save and stop after a batch, if that is due."""
        trainer, progress = self.session.trainer, self.progress
        if trainer.fit_loop.restarting:  # otherwise no plateau schedule steps after an epoch that was resumed within
            private.end_restart(trainer.fit_loop)
        if trainer.is_last_batch:  # the end of the epoch saves by itself
            return
        self.stop, interrupts = progress.should_stop(), progress.update_interrupted(trainer)
        if progress.epoch_goes_on(trainer) and not progress.is_validation_due(trainer):
            position, every = progress.position, self.plan.checkpoint.every_n_steps
            is_due = every is not None and position.steps % every == 0 and ends_step(trainer, position.batch)
            if interrupts or is_due or self.stop:
                self._save(self.stop)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the previous epoch only now: schedules that monitor a metric step after its last hook."""
        self._finish_epoch()
        self.results.begin_epoch()
        widen_metrics(self.plan, self.session.module)
        self.session.log.begin_epoch("train")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.phases.synchronize()  # a stop may have ended the epoch before its last batch
        self.results.reduce_stage("train")

    def end_stage(self) -> None:
        self.results.end_stage("train")
        self.epoch_ended = True

    def _finish_epoch(self) -> None:
        """Record an epoch that has ended, print its line, and save a checkpoint. Not for an interrupted one."""
        if self.epoch_ended and not self.progress.interrupted_epoch:
            self.progress.ended = self.session.trainer.should_stop
            self.results.end_epoch()
            self._save()
            seconds, ranks = self.session.phases.seconds, self.session.recorder.rank_seconds
            self.session.notes.end_epoch(self.progress.position.epochs, seconds, ranks)
            if self.progress.should_stop():
                raise TrainingInterrupted(self.progress.position.steps)
        self.epoch_ended = False

    def end_validation(self) -> None:
        """Record and save a validation within an epoch."""
        if self.progress.epoch_goes_on(self.session.trainer):
            self.results.end_validation()
            self._save(self.stop)

    def _save(self, stops: bool = False) -> None:
        """Save a checkpoint, after the values that are logged until now; then end the run if it `stops`."""
        self.session.loggers.flush()
        self.session.trainer.save_checkpoint(self.session.last_checkpoint)
        if stops:
            raise TrainingInterrupted(self.progress.position.steps)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint |= self.state.saved()


def attach(
    trainer: pl.Trainer, evaluation: EvaluationCallback, batches: BatchCallback, training: TrainingCallback
) -> None:
    """Have the hooks of the module followed by these methods, each in this order and with the hook's arguments.

    A callback of Lightning comes before the same hook of the module. What reads the values that a hook logs, or saves
    what it has changed, has to come after it.
    """
    module = training.session.module
    module.trainer = trainer  # as Lightning sets it in fit: a run that has finished is not trained again
    following: dict[str, tuple[Callable[..., None], ...]] = {
        "on_fit_start": (training.state.restore_optimizers,),
        "on_train_start": (training.state.restore_metrics,),
        "on_train_batch_end": (batches.end, training.save_if_due),
        "on_train_epoch_end": (training.end_stage,),
        "on_fit_end": (training.end_fit,),
        "on_validation_end": (evaluation.end, training.end_validation),
        "on_test_end": (evaluation.end,),
    }
    for stage in ("validation", "test"):
        following[f"on_{stage}_epoch_start"] = (lambda: broadcast(module.buffers()),)  # those that are saved
        following[f"on_{stage}_batch_end"] = (evaluation.end_batch,)
        following[f"on_{stage}_epoch_end"] = (evaluation.end_stage,)
    for name, methods in following.items():

        def hook(original: Callable[..., Any], *arguments: Any, methods: Any = methods) -> Any:
            returned = original(*arguments)
            for method in methods:
                method(*arguments)
            return returned

        replace_method(module, name, hook)
