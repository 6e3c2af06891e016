"""Training: `fit` alternates an epoch over this rank's share of each batch with evaluations, and saves between."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from lockstep.errors import TrainingInterrupted
from lockstep.own_module.session import ModuleSession
from lockstep.precision import default_dtype
from lockstep.progress import epoch_line, shows_bar
from lockstep.raw.modules.evaluation import evaluate, sanity_check
from lockstep.raw.modules.hooks import Hooks
from lockstep.raw.modules.optimization import (
    automatic_step,
    configured,
    manual_backward,
    manual_step,
    step_schedules,
    watch_manual_steps,
)
from lockstep.raw.modules.state import load_optimizers, save_state
from lockstep.raw.modules.trainer import RawTrainer
from lockstep.raw.precision import Precision
from lockstep.raw.timing import training_time
from lockstep.run_bar import RunBar
from lockstep.strategies import WrappedModule


class Training:
    """What the loops work on. `seconds` are those of training alone."""

    wrapped: WrappedModule

    def __init__(self, session: ModuleSession, trainer: RawTrainer, hooks: Hooks, precision: Precision) -> None:
        self.session, self.trainer, self.hooks, self.precision = session, trainer, hooks, precision
        self.module = session.module
        self.seconds = 0.0
        shows = trainer.is_global_zero and shows_bar(session.plan.trainer.enable_progress_bar)
        self.bar = RunBar(session.plan.max_epochs, trainer.num_training_batches) if shows else None

    def prepare(self) -> None:
        """The module onto its device, what its strategy puts around it, then its optimizers."""
        self.wrapped = self.session.plan.strategy.wrap_module(self.session.plan, self.module)
        self.session.weights.wrap_callbacks(self.trainer.callbacks)
        self.trainer.manual_backward = lambda *own, **named: manual_backward(self, *own, **named)
        if self.session.plan.train:
            made = self.module.configure_optimizers()
            self.trainer.optimizers, self.trainer.lr_scheduler_configs = configured(made)
            self.trainer.check_optimizers(self.module)
            self.session.weights.take_optimizers(self.trainer.optimizers)
            if self.session.manual:
                watch_manual_steps(self)

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Around training: the bar leaves the terminal, whatever ends it."""
        try:
            yield
        finally:
            if self.bar is not None:
                self.bar.close()

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        """Around each step: in which numbers it computes."""
        with self.precision.autocast(), default_dtype(self.precision.dtype):
            yield


def fit(run: Training) -> None:
    """Train for the plan's epochs, or until a callback stops. After each: the record, the curves, a checkpoint.

    Raises:
        TrainingInterrupted: someone asked; a checkpoint is saved.
        NotFinite: a loss is NaN or infinite.
    """
    session, trainer, hooks, module = run.session, run.trainer, run.hooks, run.module
    hooks.call("on_fit_start")
    load_optimizers(run)
    if session.checks_first:
        sanity_check(run)
    trainer.training = True
    loader = (session.source.owner or module).train_dataloader()
    trainer.train_dataloader = loader
    session.watch(trainer.optimizers, trainer.lr_scheduler_configs, run.wrapped.ddp)
    session.restore()
    hooks.call("on_train_start")
    session.state.restore_metrics()
    session.restore_accumulation(trainer)
    while not session.ends(trainer):
        began = time.perf_counter()
        trainer.current_epoch = session.at.epochs
        with training_time(run):
            train_epoch(run, loader)
        run.hooks.of_callbacks("on_train_epoch_end", monitoring=False)
        run.hooks.of_module("on_train_epoch_end")
        session.end_stage(trainer, "train")
        run.hooks.of_callbacks("on_train_epoch_end", monitoring=True)
        if session.cut:  # the checkpoint of its part is saved
            break
        if trainer.is_last_batch:  # no callback has ended it before
            step_schedules(run, "epoch", 0, plateau=True)
        session.ended = trainer.should_stop
        session.end_epoch()
        if run.bar is not None:
            run.bar.show({name: float(value) for name, value in trainer.progress_bar_metrics.items()})
        elif trainer.is_global_zero:
            seconds = time.perf_counter() - began
            print(epoch_line(session.at.epochs, session.plan.max_epochs, session.results, seconds), flush=True)
        save_state(run)
        if session.should_stop():
            raise TrainingInterrupted(session.at.steps)
    session.end_training()
    hooks.call("on_train_end")
    trainer.training = False
    hooks.call("on_fit_end")


def train_epoch(run: Training, loader: Any) -> None:
    """Every training batch once, from where the epoch stands; then, or in between, the validation."""
    session, trainer, hooks = run.session, run.trainer, run.hooks
    loader.set_epoch(session.at.epochs)
    session.begin_epoch()
    if run.bar is not None:
        run.bar.begin(session.at.epochs + 1, session.at.batch)
    if session.at.batch == 0:
        hooks.call("on_train_epoch_start")
    accumulate = session.batches_per_step
    for number, (batch, last) in enumerate(with_last(loader, session.at.batch), start=session.at.batch):
        trainer.is_last_batch = last
        due = (number + 1) % accumulate == 0 or last
        batch = session.transfer(batch)
        session.begin_batch(batch)
        hooks.of_callbacks("on_train_batch_start", batch, number)
        if hooks.of_module("on_train_batch_start", batch, number) == -1:
            trainer.is_last_batch = True
            break  # as Lightning, which leaves out the validation too
        outputs = manual_step(run, batch, number) if session.manual else automatic_step(run, batch, number, due)
        if due:
            step_schedules(run, "step", number, plateau=False)
        if last:
            step_schedules(run, "epoch", number, plateau=False)
        hooks.call("on_train_batch_end", outputs, batch, number)
        session.end_batch(trainer, due, last)
        if run.bar is not None:
            run.bar.batch()
        stop = not last and session.should_stop()
        cut = not last and session.cuts_epoch(trainer)
        validates = session.validates_here(trainer, last)
        if validates:
            validate(run, due)
        if session.goes_on(trainer, last):  # the epoch's end saves by itself
            if validates:
                session.end_validation()
            if validates or stop or cut or (due and session.checkpoints.due(session.at.steps)):
                save_state(run)
            if stop:
                raise TrainingInterrupted(session.at.steps)
        if due:
            step_schedules(run, "step", number, plateau=True)
        if trainer.should_stop or session.cut:
            break


def validate(run: Training, due: bool) -> None:
    """After a batch, which may be within an accumulated step: then its gradients stay."""
    with training_time(run, sign=-1):
        if due:
            run.module.on_validation_model_zero_grad()
        evaluate(run, "val")
        run.session.logged.enter("train")


def with_last(loader: Any, first: int) -> Iterator[tuple[Any, bool]]:
    """Each batch from the loader's place on, and whether it is the last. One without a length is read ahead."""
    batches: Iterable[Any] = iter(loader)
    try:
        length = len(loader)
    except TypeError:
        waiting = [*_next(batches)]
        while waiting:
            following = [*_next(batches)]
            yield waiting[0], not following
            waiting = following
        return
    for number, batch in enumerate(batches, start=first):
        yield batch, number + 1 == length


def _next(batches: Any) -> Iterator[Any]:
    """One or none."""
    end = object()
    if (found := next(batches, end)) is not end:
        yield found
