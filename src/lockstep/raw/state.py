"""The module's state in a checkpoint, by Lightning's names: saved between two batches, and loaded."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from lockstep.checkpoint.content import SCALER
from lockstep.checkpoint.saving import save
from lockstep.parallel.tensor_layout import full_optimizer_state, full_state_dict

if TYPE_CHECKING:
    from lockstep.raw.run import Training


def save_state(run: "Training") -> None:
    """Save a checkpoint. To be called by every rank; rank 0 writes."""
    session, module, trainer = run.session, run.module, run.trainer
    if not session.plan.saves:
        return
    position, datamodule = session.progress.position, trainer.datamodule
    checkpoint: dict[str, Any] = {
        "pytorch-lightning_version": version("lightning"),
        "epoch": position.epochs if position.batch else position.epochs - 1,
        "global_step": trainer.global_step,
        "state_dict": full_state_dict(module),
        "optimizer_states": [full_optimizer_state(optimizer) for optimizer in trainer.optimizers],
        "lr_schedulers": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
        "callbacks": {callback.state_key: state for callback in trainer.callbacks if (state := callback.state_dict())},
    }
    if run.precision.scale is not None:
        checkpoint[SCALER] = run.precision.scaler.state_dict()
    for owner in (module, datamodule):
        if hparams := dict(getattr(owner, "hparams", {}) or {}):
            from lockstep.private_api.lightning import HPARAMS_NAME  # whoever has hparams has imported Lightning

            checkpoint[owner.CHECKPOINT_HYPER_PARAMS_KEY] = hparams
            checkpoint[owner.CHECKPOINT_HYPER_PARAMS_NAME] = getattr(owner, HPARAMS_NAME, None)
    for hook in run.hooks.of_callbacks("on_save_checkpoint"):
        hook(checkpoint)
    if datamodule is not None and (state := datamodule.state_dict()):
        checkpoint[type(datamodule).__qualname__] = state
    for hook in run.hooks.of_module("on_save_checkpoint"):
        hook(checkpoint)
    checkpoint |= session.extra_state()
    if session.context.rank == 0:
        session.loggers.flush()
        save(checkpoint, session.checkpoints.last)


def load_state(run: "Training") -> None:
    """Load the module's state from the checkpoint that the run begins at, if there is one."""
    session, datamodule, checkpoint = run.session, run.trainer.datamodule, run.session.start.checkpoint
    if checkpoint is None:
        return
    for hook in run.hooks.of_module("on_load_checkpoint"):
        hook(checkpoint)
    session.load_weights(checkpoint)
    if not session.plan.train or session.start.is_finished:
        return
    for callback in run.trainer.callbacks:
        callback.on_load_checkpoint(run.trainer, run.module, checkpoint)
        if (state := checkpoint.get("callbacks", {}).get(callback.state_key)) is not None:
            callback.load_state_dict(state)
    if datamodule is not None and (state := checkpoint.get(type(datamodule).__qualname__)):
        datamodule.load_state_dict(state)


def load_optimizers(run: "Training") -> None:
    """Load optimizers and schedules, after on_fit_start, in which callbacks restore the groups that they added."""
    session, trainer, checkpoint = run.session, run.trainer, run.session.start.checkpoint
    if checkpoint is None:
        return
    session.state.restore_optimizers(trainer)
    if run.precision.scale is not None and SCALER in checkpoint:
        run.precision.scaler.load_state_dict(checkpoint[SCALER])
    trainer.global_step = int(checkpoint["global_step"])
    trainer.current_epoch = session.progress.position.epochs
