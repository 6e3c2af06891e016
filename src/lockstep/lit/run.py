"""One run by Lightning, from its plan to its metrics: module, data, callbacks, Trainer; fit and test."""

import logging
import os
import warnings

from lightning.pytorch.callbacks import Callback

from lockstep.checkpoint.content import Progress
from lockstep.launch.topology import RankContext
from lockstep.lit.datamodule import ShardedData
from lockstep.lit.metrics import EpochMetrics
from lockstep.lit.module import Supervised
from lockstep.lit.plateau import PlateauStep
from lockstep.lit.progress import create_progress
from lockstep.lit.recording import RecordCallback
from lockstep.lit.saving import CheckpointCallback
from lockstep.lit.step_logger import StepLogger
from lockstep.lit.stopwatch import Stopwatch
from lockstep.lit.trainer import create_trainer
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from lockstep.session import Session

NOT_FOR_US = (
    "It is recommended to use `self.log.*sync_dist=True",  # what is logged has been summed over the ranks already
    "The number of training batches .* is smaller than the logging interval",
    "You're resuming from a checkpoint that ended before the epoch ended",  # ShardSampler goes on within it
    "Be aware that when using `ckpt_path`, callbacks",  # a test writes no checkpoint, so it has no use for theirs
    "Total length of `list` across ranks is zero",  # no validation split
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # between Lightning and torch
)


def run(plan: Plan, context: RankContext) -> Metrics:
    """Train and test as the plan says. Every rank returns the same metrics."""
    _hush()
    session = Session(plan, context)
    plan, start, device = session.plan, session.start, session.device
    module = Supervised(session.net, plan, session.masks)
    loaders = ShardedData(session.data, plan, context, start.at, device)
    stopwatch = Stopwatch()
    progress = create_progress(plan.trainer.enable_progress_bar)
    callbacks: list[Callback] = [stopwatch, EpochMetrics(session), progress]  # the last shows what is summed
    if plan.logger:
        callbacks.append(StepLogger(session))
    if plan.train:
        callbacks.append(RecordCallback(session))
        if plan.scheduler.interval == "plateau":
            callbacks.append(PlateauStep(session))
        callbacks.append(CheckpointCallback(session))
    trainer = create_trainer(plan, session.loggers.lightning, callbacks)

    with session.running():
        if session.finished:  # Lightning would not even restore it
            session.load_weights()
            session.restore()
            session.recorder.end()
        elif plan.train:
            with session.listening():
                trainer.fit(module, loaders, ckpt_path=plan.ckpt_path, weights_only=True)
        if plan.test:
            ckpt_path = None if plan.train else plan.ckpt_path
            trainer.test(module, loaders, ckpt_path=ckpt_path, weights_only=True, verbose=False)
        session.loggers.close(session.measured.results)
    epochs, steps = max(trainer.current_epoch, start.at.epochs), max(trainer.global_step, start.at.steps)
    return session.finish(Progress(epochs, 0, steps), stopwatch.seconds)


def _hush() -> None:
    """Leave the terminal to the run's own lines, and the driver in peace."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in NOT_FOR_US:
        warnings.filterwarnings("ignore", message)
    # Lightning sets it on import, which is now where torchrun started this process. Every step of Adam would load the
    # driver anew to ask whether there is a GPU.
    os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
