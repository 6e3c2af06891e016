"""The Lightning engine: a Trainer with three callbacks of Lockstep, and a faster loop over an epoch."""

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning
import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, Checkpoint, EarlyStopping, ModelSummary, ProgressBar
from lightning.pytorch.profilers import AdvancedProfiler, PyTorchProfiler

from lockstep.base.config_error import require
from lockstep.base.messages import all_gather_json
from lockstep.base.private_api import lightning as private
from lockstep.base.streams import notice
from lockstep.base.timeline import timeline
from lockstep.engine.callbacks import Bar, ConfusionMatrix
from lockstep.engine.checkpoint_io import SessionCheckpointIO, save_on_every_rank
from lockstep.engine.evaluation import EvaluationCallback
from lockstep.engine.inspection import check_callback
from lockstep.engine.notes import SamplePictures
from lockstep.engine.results import STOPPING, look_at
from lockstep.engine.session import Session
from lockstep.engine.state import RankState
from lockstep.engine.training import BatchCallback, TrainingCallback, attach
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.target import tensorboard_of
from lockstep.plan.targets.locate import create
from lockstep.runs.checkpoint.files import BEST, read_checkpoint
from lockstep.runs.checkpoint.reading import require_net
from lockstep.runs.run_files import Metrics

IRRELEVANT_WARNINGS = (
    "It is recommended to use `self.log.*sync_dist=True",  # logged values are already summed over ranks
    "The number of training batches .* is smaller than the logging interval",
    "You're resuming from a checkpoint that ended before the epoch ended",  # RankLoader resumes within it
    "GPU available but not used",  # accelerator=cpu was typed
    "Be aware that when using `ckpt_path`, callbacks",  # a test writes no checkpoint
    "You defined a `validation_step` but have no `val_dataloader`",  # a run may go without
    "Total length of `list` across ranks is zero",  # no validation split
    "Experiment logs directory .* exists and is not empty",  # the table of an earlier run in this folder
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # between Lightning and torch
)


def run(plan: Plan, context: RankContext) -> Metrics:
    """Train and test as the plan says. Every rank returns the same metrics."""
    silence_warnings()
    session = Session(plan, context)
    plan, start, fitted = session.plan, session.start, {"datamodule": session.data.source.data_module}
    with session.running(), timeline(plan.run_dir, context.rank, plan.profiler) as recorded:
        if recorded is not None:
            session.phases.marks, session.notes.values["timeline"] = recorded.marks, recorded.summary
        state = RankState(session)
        training = TrainingCallback(session, state)
        first = (EvaluationCallback(session), BatchCallback(session), training)
        callbacks = monitoring_callbacks(session, create_callbacks(plan))
        if start.content and start.content["best"] and STOPPING not in start.content["results"]:
            for each in callbacks:  # its state has the name that it was saved under
                if isinstance(each, EarlyStopping) and each.monitor == STOPPING:
                    look_at(each, start.content["best"][0])
        session.results.prints_epochs = not any(isinstance(each, ProgressBar) for each in callbacks)
        summaries = [ModelSummary(max_depth=-1)] if plan.model_summary else []  # it may draw: before ranks are seeded
        trainer = create_trainer(session, state, [*summaries, *first, *callbacks])
        attach(trainer, *first)
        if start.checkpoint is not None and start.is_finished:  # Lightning would not even restore it
            session.begin([])
            require_net(plan, session.module, start.checkpoint)
            session.load_weights(start.checkpoint)
            training.end_finished()
        elif plan.train:
            with session.progress.accepting_stop():
                trainer.fit(session.module, **fitted, ckpt_path=plan.ckpt_path, weights_only=True)
        if plan.test and session.data.runs("test"):
            if plan.test == "best":
                all_gather_json(None)  # rank 0 has saved it
                best = session.last_checkpoint.with_name(BEST)
                require(best.is_file(), "test", "best", "this run has saved no best.ckpt", "test=true")
                session.load_weights(read_checkpoint(best))
            ckpt_path = None if plan.train else plan.ckpt_path
            trainer.test(session.module, **fitted, ckpt_path=ckpt_path, weights_only=True, verbose=False)
        session.loggers.close()
        if session.notes.writes:
            session.notes.data(session.data.by_stage, session.data.source.owner)
        return session.results.finish()


def monitoring_callbacks(session: Session, chosen: list[Callback]) -> list[Callback]:
    """Return the callbacks that show a module's predictions, and a bar, before and after the chosen ones."""
    plan, board, logger = session.plan, session.loggers.board, tensorboard_of(session.plan)
    callbacks, pictures = list[Callback](), None
    shows = logger is not None and logger.call.get("images", True) and plan.train and session.data.runs("val")
    if shows and board is not None:
        from lockstep.engine.callbacks.pictures import Pictures  # on rank 0 alone

        pictures = Pictures(board, lambda: session.progress.position.steps)
    if shows or plan.test:
        confusion = ConfusionMatrix(plan.run_dir, shows, lambda: session.step.counted > 0, pictures)
        callbacks.append(confusion)
        if session.notes.writes and plan.test:
            callbacks.append(SamplePictures(session.notes, confusion))
    callbacks += chosen
    wants_bar = plan.trainer.enable_progress_bar
    wants_bar = sys.stdout.isatty() if wants_bar is None else wants_bar
    if wants_bar and not any(isinstance(each, ProgressBar) for each in chosen):
        callbacks.append(Bar(refresh_rate=plan.log_every_n_steps))
    return callbacks


def create_callbacks(plan: Plan) -> list[Callback]:
    """Create the callbacks that a plan names, in the order of the command; raise a ConfigError for another object."""
    callbacks: list[Any] = [create(choice.key, choice.call) for choice in plan.callbacks]
    for choice, callback in zip(plan.callbacks, callbacks, strict=True):
        check_callback(choice, type(callback))  # the inspection has called no function
    return callbacks


def create_profiler(plan: Plan) -> AdvancedProfiler | PyTorchProfiler | None:
    """Create Lightning's profiler, which writes to a folder of the run; `profiler=simple` is the table of Phases."""
    kinds: dict[str, Any] = {"advanced": AdvancedProfiler, "pytorch": PyTorchProfiler}
    kind = kinds.get(str(plan.profiler))
    return kind and kind(dirpath=Path(plan.run_dir) / "profiler", filename="rank")


def silence_warnings() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    summary = logging.getLogger(ModelSummary.__module__)  # by which its callback prints: to stderr, like a warning
    summary.setLevel(logging.INFO)
    summary.propagate, summary.handlers = False, [logging.StreamHandler(sys.stdout)]
    for message in IRRELEVANT_WARNINGS:
        warnings.filterwarnings("ignore", message)


def create_trainer(session: Session, state: RankState, callbacks: list[Callback]) -> pl.Trainer:
    """Create the Trainer of a plan, without Lightning's own samplers, summaries and signal handlers."""
    plan, clips = session.plan, session.plan.gradient_clip_val is not None
    deterministic = plan.trainer.deterministic
    if deterministic is None and plan.compile and plan.accelerator == "cpu":
        deterministic = "warn"  # else threads of a compiled graph add the gradients of an embedding in any order
    trainer = pl.Trainer(
        accelerator=plan.accelerator,
        devices="auto" if plan.strategy.share_device else plan.world.local_world_size,
        num_nodes=plan.num_nodes,
        strategy=plan.strategy.lightning(plan),
        plugins=[SessionCheckpointIO(state)],
        precision=plan.precision,
        max_epochs=plan.max_epochs,
        max_steps=plan.trainer.max_steps,
        val_check_interval=plan.trainer.val_check_interval,
        check_val_every_n_epoch=plan.trainer.check_val_every_n_epoch,
        reload_dataloaders_every_n_epochs=plan.trainer.reload_dataloaders_every_n_epochs,
        gradient_clip_val=plan.gradient_clip_val,
        gradient_clip_algorithm=plan.trainer.gradient_clip_algorithm if clips else None,
        detect_anomaly=plan.trainer.detect_anomaly,
        deterministic=deterministic,
        benchmark=plan.trainer.benchmark,
        profiler=create_profiler(plan),
        accumulate_grad_batches=plan.accumulate_grad_batches,
        log_every_n_steps=plan.log_every_n_steps,
        logger=session.loggers,
        callbacks=callbacks,
        default_root_dir=plan.run_dir,
        limit_val_batches=0 if plan.trainer.limit_val_batches == 0 else 1.0,  # loaders end by themselves
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
        enable_model_summary=False,
        enable_progress_bar=any(isinstance(callback, ProgressBar) for callback in callbacks),
    )
    if plan.checkpoint.sharded:
        save_on_every_rank(trainer.strategy)
    private.disable_signal_handlers(trainer)
    trainer.fit_loop.max_batches = plan.steps.epoch_batches or float("inf")  # configure_optimizers may ask for it
    if plan.engine.fast_loop and plan.profiler not in ("advanced", "pytorch"):  # which time its own loop
        use_fast_loop(trainer, session)
    private.forbid_stop_iteration(trainer)
    private.disable_sigterm_broadcast(trainer.fit_loop.epoch_loop)
    return trainer


def use_fast_loop(trainer: pl.Trainer, session: Session) -> None:
    """Replace the epoch loop by the faster one, if it is tested with this version of Lightning."""
    loop = trainer.fit_loop.epoch_loop
    if lightning.__version__ in private.TESTED:
        from lockstep.engine.loop import FastTrainingEpochLoop  # its base class has a private name

        trainer.fit_loop.epoch_loop = FastTrainingEpochLoop(session, trainer, loop.min_steps, loop.max_steps)
    elif trainer.is_global_zero:
        version = lightning.__version__
        notice(f"Lightning {version} is not tested: its own loop trains, which is slower and computes the same")
