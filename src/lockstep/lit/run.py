"""One run by Lightning: data, net, Trainer; fit, test, and the metrics of both."""

import logging
import os
import warnings
from pathlib import Path

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn

from lockstep import data
from lockstep.checkpoint.content import own_names
from lockstep.checkpoint.keeper import Keeper
from lockstep.checkpoint.reading import Start, going_on, starting_point
from lockstep.data.loader import resident
from lockstep.launch.place import Place
from lockstep.lit.callbacks import Curves, Recording, Stopwatch, Totals
from lockstep.lit.datamodule import ShardedData
from lockstep.lit.module import create_module
from lockstep.lit.progress import create_progress
from lockstep.lit.saving import Saving
from lockstep.lit.trainer import create_trainer
from lockstep.memory import keep_freed
from lockstep.parallel import devices_of, show_shapes, slice_dropout, synchronise_batchnorm
from lockstep.plan import Plan
from lockstep.record import Metrics, save_confusion
from lockstep.recorder import Recorder
from lockstep.results import results_of
from lockstep.seeding import initial_net, seed_rank
from lockstep.task import EVALUATED

METRICS = ("train/loss", "train/acc", *EVALUATED)
NOT_FOR_US = (
    "It is recommended to use `self.log.*sync_dist=True",  # what is logged has been summed over the ranks already
    "The number of training batches .* is smaller than the logging interval",
    "You're resuming from a checkpoint that ended before the epoch ended",  # ShardSampler goes on within it
    "Be aware that when using `ckpt_path`, callbacks",  # a test writes no checkpoint, so it has no use for theirs
    "Total length of `list` across ranks is zero",  # no validation split
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # between Lightning and torch
)


def run(plan: Plan, place: Place) -> Metrics:
    """Train and test as the plan says, in this rank's place. Every rank returns the same metrics."""
    _hush()
    keep_freed()
    plan = going_on(plan, place.restarts)
    tensors = data.load(plan.data)
    net = synchronise_batchnorm(plan, initial_net(plan, tensors))
    masks = slice_dropout(plan, place.rank, net)
    show_shapes(plan, net)
    seed_rank(plan.seed, place.rank)
    start = starting_point(plan, net)
    device, *_ = devices_of(plan)
    module, loaders = (
        create_module(net, plan, masks),
        ShardedData(resident(tensors, device), plan, place, start.at, device),
    )
    stopwatch, totals, curves = Stopwatch(), Totals(plan.data.classes), Curves(plan.log_every_n_steps)
    callbacks: list[Callback] = [stopwatch, totals, create_progress()]  # the last shows what Totals has summed
    if plan.logger.name != "none":
        callbacks.append(curves)
    if plan.train:
        recorder = start.recorder(plan, place.rank, net)
        keeper = Keeper(plan, place.rank, recorder)
        callbacks += [Recording(recorder, totals), Saving(keeper, start, totals, curves, place)]
    trainer = create_trainer(plan, start.at, callbacks)
    if plan.train and start.at.epochs == plan.max_epochs:  # Lightning would not even restore it
        take_up_finished(net, start, totals, recorder)
    elif plan.train:
        with place.stop.heard(plan.batches_before(start.at.epochs, start.at.batch)):
            trainer.fit(module, loaders, ckpt_path=plan.ckpt_path, weights_only=True)
    if plan.test:
        ckpt_path = None if plan.train else plan.ckpt_path
        trainer.test(module, loaders, ckpt_path=ckpt_path, weights_only=True, verbose=False)
        if place.rank == 0 and plan.data.classes:
            save_confusion(Path(plan.run_dir), totals.confusion.tolist())
    results = {name: totals.results[name] for name in METRICS if name in totals.results}
    _log_final(trainer, plan, results)
    return results_of(
        plan,
        net,
        epochs=max(trainer.current_epoch, start.at.epochs),
        steps=max(trainer.global_step, start.at.steps),
        seconds=stopwatch.seconds,
        trained=totals.trained,
        measured=results,
    )


def take_up_finished(net: nn.Module, start: Start, totals: Totals, recorder: Recorder) -> None:
    """Training was done when the run was interrupted: what is left is to be tested."""
    assert start.checkpoint is not None
    assert start.content is not None
    net.load_state_dict(own_names(start.checkpoint["state_dict"]))
    totals.results = dict(start.content.results)
    recorder.end()


def _log_final(trainer: pl.Trainer, plan: Plan, results: dict[str, float]) -> None:
    """Hyper-parameters together with the final metrics: TensorBoard's hparams page shows nothing for either alone."""
    for logger in trainer.loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.log_hyperparams(plan.summary(), {f"final/{name}": value for name, value in results.items()})
        else:
            logger.log_hyperparams(plan.summary())
        logger.finalize("success")


def _hush() -> None:
    """Leave the terminal to the run's own lines, and the driver in peace."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in NOT_FOR_US:
        warnings.filterwarnings("ignore", message)
    # Lightning sets it on import, which is now where torchrun started this process. Every step of Adam would load the
    # driver anew to ask whether there is a GPU.
    os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
