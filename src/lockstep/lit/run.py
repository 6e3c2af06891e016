"""One run by Lightning: data, net, Trainer; fit, test, and the metrics of both."""

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn

from lockstep import data
from lockstep.checkpoint.content import own_names
from lockstep.checkpoint.reading import ResumeState, resume_after_restart, resume_state
from lockstep.checkpoint.saving import CheckpointManager
from lockstep.data.loader import to_device_if_fits
from lockstep.launch.topology import RankContext
from lockstep.lit.callbacks import EpochMetrics, RecordCallback, StepLogger, Stopwatch
from lockstep.lit.datamodule import ShardedData
from lockstep.lit.module import Supervised
from lockstep.lit.progress import create_progress
from lockstep.lit.saving import CheckpointCallback
from lockstep.lit.trainer import create_trainer
from lockstep.memory import disable_malloc_trim
from lockstep.parallel import convert_batchnorm, convert_dropout, show_shapes
from lockstep.plan import Plan
from lockstep.recorder import Recorder
from lockstep.results import results_of
from lockstep.run_files import Metrics, save_confusion
from lockstep.seeding import build_model, seed_rank
from lockstep.world_dependence import heading

NOT_FOR_US = (
    "It is recommended to use `self.log.*sync_dist=True",  # what is logged has been summed over the ranks already
    "The number of training batches .* is smaller than the logging interval",
    "You're resuming from a checkpoint that ended before the epoch ended",  # ShardSampler goes on within it
    "Be aware that when using `ckpt_path`, callbacks",  # a test writes no checkpoint, so it has no use for theirs
    "Total length of `list` across ranks is zero",  # no validation split
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # between Lightning and torch
)


def run(plan: Plan, context: RankContext) -> Metrics:
    """Train and test as the plan says, in this rank's place. Every rank returns the same metrics."""
    _hush()
    disable_malloc_trim()
    plan = resume_after_restart(plan, context.restarts)
    tensors = data.load(plan.data)
    net = convert_batchnorm(plan, build_model(plan, tensors))
    masks = convert_dropout(plan, context.rank, net)
    show_shapes(plan, net)
    seed_rank(plan.seed, context.rank)
    start = resume_state(plan, net)
    device, *_ = plan.strategy.devices(plan)
    module, loaders = (
        Supervised(net, plan, masks),
        ShardedData(to_device_if_fits(tensors, device), plan, context, start.at, device),
    )
    stopwatch, totals, curves = Stopwatch(), EpochMetrics(plan.task), StepLogger(plan.task, plan.log_every_n_steps)
    callbacks: list[Callback] = [stopwatch, totals, create_progress()]  # the last shows what EpochMetrics has summed
    if plan.logger.name != "none":
        callbacks.append(curves)
    if plan.train:
        recorder = start.recorder(plan, context.rank, net)
        manager = CheckpointManager(plan, context.rank, recorder)
        callbacks += [RecordCallback(recorder, totals), CheckpointCallback(manager, start, totals, curves, context)]
    trainer = create_trainer(plan, start.at, callbacks)
    if plan.train and start.at.epochs == plan.max_epochs:  # Lightning would not even restore it
        restore_finished(net, start, totals, recorder)
    elif plan.train:
        with context.stop.listening(plan.batches_before(start.at.epochs, start.at.batch)):
            trainer.fit(module, loaders, ckpt_path=plan.ckpt_path, weights_only=True)
    if plan.test:
        ckpt_path = None if plan.train else plan.ckpt_path
        trainer.test(module, loaders, ckpt_path=ckpt_path, weights_only=True, verbose=False)
        if context.rank == 0 and plan.data.classes:
            save_confusion(Path(plan.run_dir), totals.confusion.tolist())
    _log_final(trainer, heading(plan, net), totals.results)
    return results_of(
        plan,
        net,
        epochs=max(trainer.current_epoch, start.at.epochs),
        steps=max(trainer.global_step, start.at.steps),
        seconds=stopwatch.seconds,
        trained=totals.trained,
        measured=totals.results,
    )


def restore_finished(net: nn.Module, start: ResumeState, totals: EpochMetrics, recorder: Recorder) -> None:
    """Training was done when the run was interrupted: what is left is to be tested."""
    assert start.checkpoint is not None
    assert start.content is not None
    net.load_state_dict(own_names(start.checkpoint["state_dict"]))
    totals.results = dict(start.content.results)
    recorder.end()


def _log_final(trainer: pl.Trainer, heading: dict[str, Any], results: dict[str, float]) -> None:
    """Hyper-parameters together with the final metrics: TensorBoard's hparams page shows nothing for either alone."""
    for logger in trainer.loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.log_hyperparams(heading, {f"final/{name}": value for name, value in results.items()})
        else:
            logger.log_hyperparams(heading)
        logger.finalize("success")


def _hush() -> None:
    """Leave the terminal to the run's own lines, and the driver in peace."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in NOT_FOR_US:
        warnings.filterwarnings("ignore", message)
    # Lightning sets it on import, which is now where torchrun started this process. Every step of Adam would load the
    # driver anew to ask whether there is a GPU.
    os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
