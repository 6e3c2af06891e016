"""The Trainer of a plan, and the warnings of Lightning that do not concern users of this project."""

import logging
import warnings

import lightning
import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, Checkpoint, ModelSummary, ProgressBar

from lockstep.lit.checkpoint import SessionCheckpointIO
from lockstep.private_api import lightning as private
from lockstep.progress import notice
from lockstep.session.session import Session

IRRELEVANT_WARNINGS = (
    "It is recommended to use `self.log.*sync_dist=True",  # logged values are already summed over ranks
    "The number of training batches .* is smaller than the logging interval",
    "You're resuming from a checkpoint that ended before the epoch ended",  # RankLoader resumes within it
    "Be aware that when using `ckpt_path`, callbacks",  # a test writes no checkpoint
    "You defined a `validation_step` but have no `val_dataloader`",  # a run may go without
    "Total length of `list` across ranks is zero",  # no validation split
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # between Lightning and torch
)


def silence_warnings() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    logging.getLogger(ModelSummary.__module__).setLevel(logging.INFO)  # its callback prints by it
    for message in IRRELEVANT_WARNINGS:
        warnings.filterwarnings("ignore", message)


def create_trainer(session: Session, callbacks: list[Callback]) -> pl.Trainer:
    """Create the Trainer of a plan, without Lightning's own samplers, summaries and signal handlers."""
    plan, clips = session.plan, session.plan.gradient_clip_val is not None
    trainer = pl.Trainer(
        accelerator=plan.accelerator,
        devices="auto" if plan.strategy.share_device else plan.world.local_world_size,
        num_nodes=plan.num_nodes,
        strategy=plan.strategy.lightning(plan),
        plugins=[SessionCheckpointIO(session)],
        precision=plan.precision,
        max_epochs=plan.max_epochs,
        max_steps=plan.trainer.max_steps,
        val_check_interval=plan.trainer.val_check_interval,
        check_val_every_n_epoch=plan.trainer.check_val_every_n_epoch,
        gradient_clip_val=plan.gradient_clip_val,
        gradient_clip_algorithm=plan.trainer.gradient_clip_algorithm if clips else None,
        detect_anomaly=plan.trainer.detect_anomaly,
        accumulate_grad_batches=plan.accumulate_grad_batches,
        log_every_n_steps=plan.log_every_n_steps,
        logger=session.loggers.loggers,
        callbacks=callbacks,
        default_root_dir=plan.run_dir,
        limit_val_batches=0 if plan.trainer.limit_val_batches == 0 else 1.0,  # loaders end by themselves
        use_distributed_sampler=False,
        num_sanity_val_steps=plan.trainer.num_sanity_val_steps,
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
        enable_model_summary=False,
        enable_progress_bar=any(isinstance(callback, ProgressBar) for callback in callbacks),
    )
    trainer.barebones = plan.trainer.barebones  # as an argument it would reject callbacks and loggers
    private.disable_signal_handlers(trainer)
    use_fast_loop(trainer, session)
    private.disable_sigterm_broadcast(trainer.fit_loop.epoch_loop)
    return trainer


def use_fast_loop(trainer: pl.Trainer, session: Session) -> None:
    """Replace the epoch loop by the faster one, if the plan says so and it is tested with this version of Lightning."""
    loop = trainer.fit_loop.epoch_loop
    if not session.plan.engine.fast_loop:
        return
    if lightning.__version__ in private.TESTED:
        from lockstep.lit.loop import FastTrainingEpochLoop  # its base class has a private name

        trainer.fit_loop.epoch_loop = FastTrainingEpochLoop(session, trainer, loop.min_steps, loop.max_steps)
    elif trainer.is_global_zero:
        version = lightning.__version__
        notice(f"Lightning {version} is not tested: its own loop trains, which is slower and computes the same")
