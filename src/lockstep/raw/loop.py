"""Training: `fit` alternates an epoch over this rank's share of each batch with evaluations, and saves between."""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from lockstep.errors import TrainingInterrupted
from lockstep.progress import epoch_line
from lockstep.raw.automatic_optimization import automatic_step
from lockstep.raw.evaluation import sanity_check, validate
from lockstep.raw.manual_optimization import manual_step
from lockstep.raw.optimization import step_schedules
from lockstep.raw.state import load_optimizers, save_state
from lockstep.raw.training import Training


def fit(run: Training) -> None:
    """Train for the plan's epochs, or until a callback stops. After each: the record, the curves, a checkpoint.

    Raises:
        TrainingInterrupted: someone asked; a checkpoint is saved.
        NotFinite: a loss is NaN or infinite.
    """
    session, trainer, hooks, results = run.session, run.trainer, run.hooks, run.session.results
    hooks.call("on_fit_start")
    load_optimizers(run)
    if session.progress.has_sanity_check:
        sanity_check(run)
    trainer.training = True
    trainer.train_dataloader = session.data.dataloader("train")
    session.watch(trainer, marks_phases=not session.manual)
    session.restore()
    hooks.call("on_train_start")
    session.state.restore_metrics()
    trainer.accumulate_grad_batches = session.progress.batches_per_step  # a callback may have set that of epoch 0
    while not session.progress.is_over(trainer):
        began = time.perf_counter()
        trainer.current_epoch = session.progress.position.epochs
        hooks.refresh()
        train_epoch(run, trainer.train_dataloader)
        for hook in hooks.of_callbacks("on_train_epoch_end", monitoring=False) + hooks.of_module("on_train_epoch_end"):
            hook()
        results.end_stage(trainer, "train")
        for hook in hooks.of_callbacks("on_train_epoch_end", monitoring=True):
            hook()
        if session.progress.interrupted_epoch:  # the checkpoint of its part is saved
            break
        if trainer.is_last_batch:  # no callback has ended it before
            step_schedules(run, "epoch", 0, plateau=True)
        session.progress.ended = trainer.should_stop
        results.end_epoch()
        show_epoch(run, time.perf_counter() - began)
        save_state(run)
        if session.progress.should_stop():
            raise TrainingInterrupted(session.progress.position.steps)
    results.end_training()
    hooks.call("on_train_end")
    trainer.training = False
    hooks.call("on_fit_end")


def show_epoch(run: Training, seconds: float) -> None:
    """Show the metrics of an epoch in the bar, or print a line."""
    if run.bar is not None:
        run.bar.show({name: float(value) for name, value in run.trainer.progress_bar_metrics.items()})
    elif run.trainer.is_global_zero:
        epochs, results = run.session.plan.max_epochs, run.session.results.values
        print(epoch_line(run.session.progress.position.epochs, epochs, results, seconds), flush=True)


def train_epoch(run: Training, loader: Any) -> None:
    """Train on every batch once, from where the epoch stands; then, or in between, validate."""
    session, trainer, hooks, progress = run.session, run.trainer, run.hooks, run.session.progress
    first, accumulate = progress.position.batch, progress.batches_per_step
    loader.set_epoch(progress.position.epochs)
    session.begin_epoch()
    if run.bar is not None:
        run.bar.begin(progress.position.epochs + 1, first)
    if first == 0:
        hooks.call("on_train_epoch_start")
    for number, (batch, last) in enumerate(with_last(loader, first), start=first):
        trainer.is_last_batch = last
        due = (number + 1) % accumulate == 0 or last
        batch = session.data.transfer(batch)
        session.begin_batch(batch)
        ends = hooks.call("on_train_batch_start", batch, number) == -1
        if ends and hooks.method("on_train_batch_start") is not None:  # a callback cannot end an epoch so
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
        follow_batch(run, due, last)
        if due:
            step_schedules(run, "step", number, plateau=True)
        if trainer.should_stop or progress.interrupted_epoch:
            break


def follow_batch(run: Training, due: bool, last: bool) -> None:
    """Validate, save and stop after a batch, if that is due. The end of an epoch saves by itself."""
    session, trainer, progress = run.session, run.trainer, run.session.progress
    stop = not last and progress.should_stop()
    interrupted = not last and progress.interrupts_epoch(trainer)
    validates = progress.is_validation_due(trainer, last)
    if validates:
        validate(run, due)
    if progress.epoch_goes_on(trainer, last):
        if validates:
            session.results.end_validation()
        if validates or stop or interrupted or (due and session.checkpoints.due(progress.position.steps)):
            save_state(run)
        if stop:
            raise TrainingInterrupted(progress.position.steps)


def with_last(loader: Any, first: int) -> Iterator[tuple[Any, bool]]:
    """Yield each batch from the loader's place on, and whether it is the last. One without a length is read ahead."""
    batches: Iterator[Any] = iter(loader)
    try:
        length = len(loader)
    except TypeError:
        length = None
    if length is not None:
        for number, batch in enumerate(batches, start=first):
            yield batch, number + 1 == length
        return
    waiting = [*islice(batches, 1)]
    while waiting:
        following = [*islice(batches, 1)]
        yield waiting[0], not following
        waiting = following
