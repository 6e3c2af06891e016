"""Training: `fit` alternates an epoch over this rank's share of each batch with evaluations, and saves between."""

from collections.abc import Iterator
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any

import torch

from lockstep.errors import TrainingInterrupted
from lockstep.parallel.messages import broadcast_buffers
from lockstep.random_state import preserve_generators
from lockstep.raw.optimization import automatic_step, manual_step, step_schedules
from lockstep.raw.state import load_optimizers, save_state

if TYPE_CHECKING:
    from lockstep.raw.run import Training

END = object()
NAMES = {"val": "validation", "test": "test"}  # the stages in the names of hooks and steps


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
            run.module.on_validation_model_zero_grad()
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


@torch.inference_mode()
def evaluate(run: "Training", stage: str, max_batches: int | None = None) -> None:
    """Run all batches of all loaders of a stage, or the first `max_batches` of each, and make results of the log."""
    session, trainer, hooks, module, name = run.session, run.trainer, run.hooks, run.module, NAMES[stage]
    loaders = session.data.loaders(stage)
    if not loaders:  # the module returns an empty list
        return
    trainer.training, trainer.validating, trainer.testing = False, stage == "val", stage == "test"
    setattr(trainer, f"{stage}_dataloaders", session.data.dataloader(stage))
    if trainer.testing:
        trainer.reset_metrics()
    modes = {child: child.training for child in module.modules()}

    def restore_modes() -> None:
        for child, mode in modes.items():
            child.training = mode

    getattr(module, f"on_{name}_model_eval")()
    session.begin_evaluation(stage)
    hooks.call(f"on_{name}_start")
    hooks.call(f"on_{name}_epoch_start")
    broadcast_buffers(module)  # after hooks that may have replaced the weights by their average
    step = getattr(module, f"{name}_step")
    for loader_idx, loader in enumerate(loaders):
        dataloader_idx = [loader_idx] if len(loaders) > 1 else []
        for batch_idx, batch in enumerate(islice(loader, max_batches)):
            batch = session.data.transfer(batch, loader_idx)
            session.begin_evaluation_batch(stage, batch_idx, loader_idx)
            hooks.call(f"on_{name}_batch_start", batch, batch_idx, *dataloader_idx)
            with run.precision.forward_context():
                outputs = step(*hooks.step_arguments(f"{name}_step", batch, batch_idx, *dataloader_idx))
            session.results.update_step_metrics(trainer)
            hooks.call(f"on_{name}_batch_end", outputs, batch, batch_idx, *dataloader_idx)
            session.log.enter(stage)
    session.before_epoch_end(trainer, stage)
    hooks.call(f"on_{name}_epoch_end")
    session.results.end_stage(trainer, stage)
    hooks.call(f"on_{name}_end")
    session.end_evaluation(stage)
    hooks.method(f"on_{name}_model_train", restore_modes)()
    trainer.training, trainer.validating, trainer.testing = stage == "val", False, False


def sanity_check(run: "Training") -> None:
    """Validate on some batches before training, so that errors show early. Everything that it changes is restored."""
    session, trainer, hooks = run.session, run.trainer, run.hooks
    with preserve_generators(), session.sanity_check():
        trainer.sanity_checking = True
        hooks.call("on_sanity_check_start")
        batches = session.plan.trainer.num_sanity_val_steps
        evaluate(run, "val", None if batches == -1 else batches)
        hooks.call("on_sanity_check_end")
        trainer.reset_metrics()
        trainer.sanity_checking = False
