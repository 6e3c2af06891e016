"""Training: `fit` alternates an epoch over this rank's share of each batch with evaluations, and saves between."""

from collections.abc import Iterator
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from lockstep.errors import TrainingInterrupted
from lockstep.raw.automatic_optimization import automatic_step, step_schedules
from lockstep.raw.evaluation import evaluate, sanity_check
from lockstep.raw.manual_optimization import manual_step
from lockstep.raw.state import load_optimizers, save_state

if TYPE_CHECKING:
    from lockstep.raw.training import Training

END = object()


def fit(run: "Training") -> None:
    """Train for the plan's epochs, or until a callback or a signal stops."""
    session, trainer, hooks, progress = run.session, run.trainer, run.hooks, run.session.progress
    hooks.call("on_fit_start")
    load_optimizers(run)
    if progress.has_sanity_check:
        sanity_check(run)
    trainer.training = True
    trainer.train_dataloader = session.data.dataloader("train")
    session.watch(trainer)
    session.restore()
    hooks.call("on_train_start")
    session.state.restore_metrics()
    while not progress.is_over(trainer):
        train_epoch(run, trainer.train_dataloader)
        end_epoch(run)
        if progress.interrupted_epoch:
            break
    trainer.current_epoch = progress.position.begun
    hooks.call("on_train_end")
    trainer.training = False
    hooks.call("on_fit_end")
    session.end_fit()


def train_epoch(run: "Training", loader: Any) -> None:
    """Train on every batch once, from where the epoch stands; then, or in between, validate."""
    session, trainer, hooks, progress = run.session, run.trainer, run.hooks, run.session.progress
    epoch, first = progress.position.epochs, progress.position.batch
    trainer.current_epoch, trainer.accumulate_grad_batches = epoch, progress.batches_per_step
    hooks.overridden.clear()  # a callback may have changed that
    loader.set_epoch(epoch)
    session.begin_epoch()
    if first == 0:
        hooks.call("on_train_epoch_start")
    for batch_idx, (batch, is_last) in enumerate(with_is_last(loader, first), start=first):
        trainer.is_last_batch = is_last
        is_step_boundary = (batch_idx + 1) % trainer.accumulate_grad_batches == 0 or is_last
        batch = session.data.transfer(batch)
        session.begin_batch()
        skips_epoch = hooks.call("on_train_batch_start", batch, batch_idx) == -1
        if skips_epoch and hooks.of_module("on_train_batch_start"):  # as in Lightning, a callback cannot
            trainer.is_last_batch = True
            session.log.enter("train")
            break
        if session.manual:
            outputs = manual_step(run, batch, batch_idx)
        else:
            outputs = automatic_step(run, batch, batch_idx, is_step_boundary)
        if is_step_boundary:
            step_schedules(run, "step", batch_idx, plateau=False)
        if is_last:
            step_schedules(run, "epoch", epoch, plateau=False)
        session.results.update_step_metrics(trainer)
        hooks.call("on_train_batch_end", outputs, batch, batch_idx)
        session.end_batch(trainer, is_step_boundary, is_last)
        follow_batch(run, is_step_boundary, is_last)
        if is_step_boundary:
            step_schedules(run, "step", batch_idx, plateau=True)
        if trainer.should_stop or progress.interrupted_epoch:
            break


def follow_batch(run: "Training", is_step_boundary: bool, is_last: bool) -> None:
    """Validate, save and stop after a batch, if that is due. The end of an epoch saves by itself."""
    session, trainer, progress = run.session, run.trainer, run.session.progress
    stops = not is_last and progress.should_stop()
    interrupts = not is_last and progress.interrupts_epoch(trainer)
    validates = progress.is_validation_due(trainer, is_last)
    if validates:
        if is_step_boundary:  # otherwise gradients are kept: the step goes on accumulating
            run.hooks.method("on_validation_model_zero_grad", run.module.zero_grad)()
        evaluate(run, "val")
    if not progress.epoch_goes_on(trainer, is_last):
        return
    if validates:
        session.results.end_validation()
    if validates or stops or interrupts or (is_step_boundary and session.checkpoints.due(progress.position.steps)):
        save_state(run)
    if stops:
        raise TrainingInterrupted(progress.position.steps)


def end_epoch(run: "Training") -> None:
    """Call the epoch's last hooks; then record, show and save it, unless it was interrupted and saved within."""
    session, trainer, hooks, progress = run.session, run.trainer, run.hooks, run.session.progress
    session.before_epoch_end(trainer, "train")
    for hook in hooks.of_callbacks("on_train_epoch_end", monitoring=False) + hooks.of_module("on_train_epoch_end"):
        hook()
    session.results.end_stage(trainer, "train")
    for hook in hooks.of_callbacks("on_train_epoch_end", monitoring=True):
        hook()
    if progress.interrupted_epoch:
        return
    if trainer.is_last_batch:  # otherwise a callback has ended the epoch early
        step_schedules(run, "epoch", trainer.current_epoch, plateau=True)
    progress.ended = trainer.should_stop
    session.results.end_epoch()
    save_state(run)
    if progress.should_stop():
        raise TrainingInterrupted(progress.position.steps)


def with_is_last(loader: Any, first: int) -> Iterator[tuple[Any, bool]]:
    """Yield each batch from number `first` on, and whether it is the last. Without a length one is read ahead."""
    batches = iter(loader)
    try:
        length = len(loader)
    except TypeError:
        for batch, following in pairwise(chain(batches, [END])):
            yield batch, following is END
    else:
        for number, batch in enumerate(batches, start=first + 1):
            yield batch, number == length
