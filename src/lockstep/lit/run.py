"""One run by Lightning: data, net, Trainer; fit, test, and the metrics of both."""

import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy, Strategy

from lockstep import data
from lockstep.launch.place import Place
from lockstep.lit.callbacks import Curves, EndOnSigterm, SameBuffers, Stopwatch, Totals
from lockstep.lit.checkpoint import check_checkpoint
from lockstep.lit.datamodule import ShardedData
from lockstep.lit.module import create_module
from lockstep.lit.progress import create_progress
from lockstep.plan import Plan
from lockstep.record import Metrics, digest
from lockstep.seeding import initial_net, seed_rank

METRICS = ("train/loss", "val/loss", "val/acc", "test/loss", "test/acc")
NOT_FOR_US = (
    "The '.*_dataloader' does not have many workers",  # the data lies in memory
    "It is recommended to use `self.log.*sync_dist=True",  # what is logged has been summed over the ranks already
    "The number of training batches .* is smaller than the logging interval",
    "Checkpoint directory .* exists and is not empty",  # a resumed run
    "The dirpath has changed from",  # a run resumed in a folder of its own
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # between Lightning and torch
)


def run(plan: Plan, place: Place) -> Metrics:
    """Train and test as the plan says, in this rank's place. Every rank returns the same metrics."""
    _hush()
    tensors = data.load(plan.data)
    net = initial_net(plan, tensors)
    seed_rank(plan.seed, place.rank)
    module, loaders = create_module(net, plan), ShardedData(tensors, plan, place)
    stopwatch, totals = Stopwatch(), Totals(plan.data.classes)
    trainer = create_trainer(plan, [stopwatch, totals])
    if plan.ckpt_path is not None:
        check_checkpoint(plan, module)
    if plan.train:
        trainer.fit(module, loaders, ckpt_path=plan.ckpt_path, weights_only=True)
    if plan.test:
        ckpt_path = None if plan.train else plan.ckpt_path
        trainer.test(module, loaders, ckpt_path=ckpt_path, weights_only=True, verbose=False)
    results = {name: totals.results[name] for name in METRICS if name in totals.results}
    _log_final(trainer, plan, results)
    return {
        **plan.summary(),
        "epochs": trainer.current_epoch,
        "steps": trainer.global_step,
        "train_seconds": stopwatch.seconds,
        "samples_per_second": totals.trained / stopwatch.seconds if totals.trained else 0.0,
        **results,
        "digest": digest(net.state_dict()),
    }


def create_trainer(plan: Plan, measuring: list[Callback]) -> pl.Trainer:
    """The Trainer of a plan. Everything that could surprise (samplers, sanity steps, summaries) is off."""
    trainer = pl.Trainer(
        accelerator=plan.accelerator,
        devices=plan.devices,
        num_nodes=plan.num_nodes,
        strategy=create_strategy(plan),
        precision=plan.precision,
        max_epochs=plan.max_epochs,
        gradient_clip_val=plan.gradient_clip_val,
        accumulate_grad_batches=plan.accumulate_grad_batches,
        log_every_n_steps=plan.log_every_n_steps,
        logger=list(_loggers(plan)),
        callbacks=[EndOnSigterm(), SameBuffers(), *measuring, *_callbacks(plan)],
        default_root_dir=plan.run_dir,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        enable_checkpointing=plan.train,
        enable_model_summary=False,
        enable_progress_bar=sys.stdout.isatty(),
    )
    # Lightning asks rank 0 before every batch whether it has caught a SIGTERM: a collective a step, which also swallows
    # the error of a lost peer. Here SIGTERM ends a rank at once (EndOnSigterm), so there is nothing to ask.
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
    return trainer


def create_strategy(plan: Plan) -> Strategy:
    """Lightning's half of the strategy, the wrapping: the processes are there, and so is their group."""
    if plan.strategy.wrap == "ddp":
        return DDPStrategy(cluster_environment=TorchElasticEnvironment(), gradient_as_bucket_view=True)
    return SingleDeviceStrategy(torch.device("cuda", 0) if plan.accelerator == "gpu" else torch.device("cpu"))


def _callbacks(plan: Plan) -> Iterator[Callback]:
    yield create_progress()  # behind Totals, whose metrics it shows
    if plan.logger.name != "none":
        yield Curves(plan.log_every_n_steps)
    if not plan.train:
        return
    monitor, mode = plan.monitor
    yield _checkpoint(plan, "best", monitor=monitor, mode=mode)
    yield _checkpoint(plan, "last")  # ModelCheckpoint's save_last would save it only where the best is saved


def _checkpoint(plan: Plan, name: str, **monitored: Any) -> ModelCheckpoint:
    """At the end of an epoch, over the one before."""
    return ModelCheckpoint(
        dirpath=Path(plan.run_dir) / "checkpoints",
        filename=name,
        save_on_train_epoch_end=True,
        enable_version_counter=False,
        **monitored,
    )


def _loggers(plan: Plan) -> Iterator[Logger]:
    if plan.logger.name == "tensorboard":
        yield TensorBoardLogger(plan.run_dir, name="tensorboard", version="", default_hp_metric=False)
    elif plan.logger.name == "csv":
        yield CSVLogger(plan.run_dir, name="csv", version="")


def _log_final(trainer: pl.Trainer, plan: Plan, results: dict[str, float]) -> None:
    """Hyper-parameters together with the final metrics: TensorBoard's hparams page shows nothing for either alone."""
    for logger in trainer.loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.log_hyperparams(plan.summary(), {f"final/{name}": value for name, value in results.items()})
        else:
            logger.log_hyperparams(plan.summary())
        logger.finalize("success")


def _hush() -> None:
    """Leave the terminal to the run's own lines."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in NOT_FOR_US:
        warnings.filterwarnings("ignore", message)
