"""What the raw engine puts into a module's checkpoint, and takes out again, by Lightning's names."""

from typing import TYPE_CHECKING, Any

from lockstep.checkpoint.content import SCALER
from lockstep.checkpoint.saving import save
from lockstep.session.loadable import loadable

if TYPE_CHECKING:
    from lockstep.raw.training import Training


def save_state(run: "Training") -> None:
    """Save a checkpoint between two batches. To be called by every rank; rank 0 writes."""
    if not run.session.plan.saves:
        return
    session, module, trainer, strategy = run.session, run.module, run.trainer, run.session.plan.strategy
    at = session.progress.position
    checkpoint: dict[str, Any] = {
        "epoch": at.epochs if at.batch else at.epochs - 1,
        "global_step": trainer.global_step,
        "state_dict": strategy.tensors.state_dict(module),
        "optimizer_states": [strategy.tensors.optimizer_state(own) for own in trainer.optimizers],
        "lr_schedulers": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
        "callbacks": {own.state_key: state for own in trainer.callbacks if (state := own.state_dict())},
    }
    source = session.data.source
    if run.precision.scale is not None:
        checkpoint[SCALER] = run.precision.scaler.state_dict()
    for owner in (module, source.owner):
        if hparams := dict(getattr(owner, "hparams", {}) or {}):
            checkpoint["hyper_parameters" if owner is module else "datamodule_hyper_parameters"] = hparams
    for hook in run.hooks.of_callbacks("on_save_checkpoint"):
        hook(checkpoint)
    if source.is_data_module and (state := source.owner.state_dict()):
        checkpoint[type(source.owner).__qualname__] = state
    for hook in run.hooks.of_module("on_save_checkpoint"):
        hook(checkpoint)
    checkpoint |= session.extra_state()
    if session.context.rank == 0:
        session.loggers.flush()
        save(loadable(checkpoint), session.checkpoints.last)


def load_state(run: "Training") -> None:
    """Load the module's state from the checkpoint that the run begins at, if it has one."""
    session, module, trainer, source = run.session, run.module, run.trainer, run.session.data.source
    checkpoint: Any = session.start.checkpoint
    if checkpoint is None:
        return
    for hook in run.hooks.of_module("on_load_checkpoint"):
        hook(checkpoint)
    session.load_weights()
    if not session.plan.train:
        return
    for callback in trainer.callbacks:
        callback.on_load_checkpoint(trainer, module, checkpoint)
        if (state := checkpoint.get("callbacks", {}).get(callback.state_key)) is not None:
            callback.load_state_dict(state)
    if source.is_data_module and (state := checkpoint.get(type(source.owner).__qualname__)):
        source.owner.load_state_dict(state)


def load_optimizers(run: "Training") -> None:
    """Load optimizers and schedules, after on_fit_start, where callbacks restore groups that they added."""
    session, trainer = run.session, run.trainer
    checkpoint: Any = session.start.checkpoint
    if checkpoint is None:
        return
    session.state.restore_optimizers(trainer.optimizers, [config.scheduler for config in trainer.lr_scheduler_configs])
    if run.precision.scale is not None and SCALER in checkpoint:
        run.precision.scaler.load_state_dict(checkpoint[SCALER])
    trainer.global_step = int(checkpoint["global_step"])
    trainer.current_epoch = session.progress.position.epochs
