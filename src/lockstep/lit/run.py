"""One run by Lightning, from its plan to its metrics: module, data, callbacks, Trainer; fit and test."""

import logging
import warnings
from pathlib import Path
from typing import Any

import lightning
import lightning.pytorch as pl
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Callback, Checkpoint, ModelSummary, ProgressBar

from lockstep.callbacks import monitoring_callbacks
from lockstep.checkpoint.content import before_fit_end, named_as_in
from lockstep.checkpoint.reading import require_net
from lockstep.checkpoint.saving import save
from lockstep.launch.topology import RankContext
from lockstep.lit.callback import SessionCallback
from lockstep.plan import Plan
from lockstep.private_api import lightning as private
from lockstep.progress import notice
from lockstep.run_files import Metrics
from lockstep.safe_loading import load
from lockstep.session.callbacks import create_callbacks
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


def run(plan: Plan, context: RankContext) -> Metrics:
    """Train and test as the plan says. Every rank returns the same metrics."""
    silence_warnings()
    session = Session(plan, context)
    plan, module, source = session.plan, session.module, session.data.source
    datamodule = source.data_module
    with session.running():
        callback, callbacks = SessionCallback(session), [*monitoring_callbacks(session), *create_callbacks(plan)]
        if any(isinstance(each, ProgressBar) for each in callbacks):
            session.results.display.has_bar = False
        trainer = create_trainer(session, [callback, *callbacks])
        callback.attach(trainer)
        if session.start.is_finished:  # Lightning would not even restore it
            session.begin([])
            session.load_weights(session.start.checkpoint)
            session.end_finished(trainer)
        elif plan.train:
            with session.progress.accepting_stop():
                trainer.fit(module, datamodule=datamodule, ckpt_path=plan.ckpt_path, weights_only=True)
        if plan.test and session.data.runs("test"):
            session.choose_net_to_test()
            ckpt_path = None if plan.train else plan.ckpt_path
            trainer.test(module, datamodule=datamodule, ckpt_path=ckpt_path, weights_only=True, verbose=False)
        session.loggers.close()
        return session.results.finish()


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


class SessionCheckpointIO(TorchCheckpointIO):
    """Writes files atomically. The state of Lightning's loops is computed from the position in training."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        position = self.session.progress.position
        epoch = position.epochs if position.batch else position.epochs - 1
        save({**checkpoint, "epoch": epoch}, Path(path))

    def load_checkpoint(self, path: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        checkpoint: dict[str, Any] = load(path)
        require_net(self.session.plan, self.session.module, checkpoint)
        checkpoint.pop("loops", None)
        if self.session.plan.train:
            fit_loop = self._fit_loop(int(checkpoint["global_step"]))
            loops = {"fit_loop": fit_loop, "validate_loop": {}, "test_loop": {}, "predict_loop": {}}
            checkpoint = {**before_fit_end(checkpoint), "loops": loops}
        checkpoint["state_dict"] = named_as_in(self.session.module, checkpoint["state_dict"])
        self.session.state.checkpoint = checkpoint
        return checkpoint

    def _fit_loop(self, steps: int) -> dict[str, Any]:
        """Return the state of a fit loop, within an epoch or before the next one, after so many optimizer steps."""
        at = self.session.start.position
        begun = dict.fromkeys(("ready", "started"), at.epochs + 1) if at.batch else {}
        return {
            "epoch_loop.state_dict": {private.BATCHES_THAT_STEPPED: at.steps},
            "epoch_loop.batch_progress": {**counters(at.batch), "is_last_batch": False},
            "epoch_loop.automatic_optimization.optim_progress": {
                "optimizer": dict.fromkeys(("step", "zero_grad"), counters(steps))
            },
            "epoch_loop.manual_optimization.optim_step_progress": counters(steps),
            "epoch_progress": counters(at.epochs, **begun),
        }


def counters(completed: int, **begun: int) -> dict[str, dict[str, int]]:
    """Return Lightning's counters of epochs, batches or steps; by default none is under way."""
    counts = {**dict.fromkeys(("ready", "started", "processed", "completed"), completed), **begun}
    return {"total": counts, "current": {**counts}}
