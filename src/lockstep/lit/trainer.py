"""The Trainer of a plan: its strategy, loggers and callbacks."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy, Strategy

from lockstep.lit.callbacks import Curves, EndOnSigterm, SameBuffers
from lockstep.lit.checkpoint import EitherEngine
from lockstep.lit.progress import create_progress
from lockstep.lit.strategy import StagesStrategy
from lockstep.parallel import devices_of
from lockstep.plan import Plan


def create_trainer(plan: Plan, measuring: list[Callback]) -> pl.Trainer:
    """What could surprise (samplers, sanity steps, summaries) is off; `measuring` comes before what shows it."""
    trainer = pl.Trainer(
        accelerator=plan.accelerator,
        devices="auto" if plan.strategy.share_device else plan.world.local_world_size,
        num_nodes=plan.num_nodes,
        strategy=create_strategy(plan),
        plugins=[EitherEngine(plan)],
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
    first, *_ = devices = devices_of(plan)
    match plan.strategy.wrap:
        case "ddp":
            sharing = devices * plan.devices if plan.strategy.share_device else None
            environment = TorchElasticEnvironment()
            return DDPStrategy(parallel_devices=sharing, cluster_environment=environment, gradient_as_bucket_view=True)
        case "stages":
            return StagesStrategy(plan)
        case _:
            return SingleDeviceStrategy(first)


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
