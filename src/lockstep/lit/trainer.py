"""The Trainer of a plan: its loggers and callbacks."""

import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from lockstep.checkpoint.content import Progress
from lockstep.lit.buffers import BroadcastBuffers
from lockstep.lit.checkpoint import CrossEngineCheckpointIO
from lockstep.lit.signal_handlers import RestoreSignalHandlers
from lockstep.plan import Plan
from lockstep.private_api import lightning as private
from lockstep.progress import Points, csv_version, notice


def create_trainer(plan: Plan, at: Progress, callbacks: list[Callback]) -> pl.Trainer:
    """What could surprise (samplers, sanity steps, summaries) is off. Training begins `at` a position."""
    trainer = pl.Trainer(
        accelerator=plan.accelerator,
        devices="auto" if plan.strategy.share_device else plan.world.local_world_size,
        num_nodes=plan.num_nodes,
        strategy=plan.strategy.lightning(plan),
        plugins=[CrossEngineCheckpointIO(plan)],
        precision=plan.precision,
        max_epochs=plan.max_epochs,
        gradient_clip_val=plan.gradient_clip_val,
        accumulate_grad_batches=plan.accumulate_grad_batches,
        log_every_n_steps=plan.log_every_n_steps,
        logger=list(_loggers(plan, at.steps)),
        callbacks=[BroadcastBuffers(), RestoreSignalHandlers(), *callbacks],
        default_root_dir=plan.run_dir,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        enable_checkpointing=plan.train,
        enable_model_summary=False,
        enable_progress_bar=sys.stdout.isatty(),
    )
    private.disable_signal_handlers(trainer)
    use_fast_loop(trainer)
    return trainer


def use_fast_loop(trainer: pl.Trainer) -> None:
    """Replace the epoch loop by the faster one, where this version of Lightning is one that it is tested with."""
    own = trainer.fit_loop.epoch_loop
    obstacle = private.fast_loop_obstacle(trainer)
    if obstacle is None:
        from lockstep.lit.loop import FastTrainingEpochLoop  # its base class has a private name

        trainer.fit_loop.epoch_loop = FastTrainingEpochLoop(trainer, own.min_steps, own.max_steps)
    elif trainer.is_global_zero:
        notice(f"{obstacle}: its own loop trains, which is slower and computes the same")
    private.disable_sigterm_broadcast(trainer.fit_loop.epoch_loop)


class BufferedTensorBoardLogger(TensorBoardLogger):
    """Hands its points on together."""

    @cached_property
    def points(self) -> Points:
        return Points(self.experiment)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.points.add({name: float(value) for name, value in metrics.items()}, step or 0)

    @rank_zero_only
    def save(self) -> None:
        self._hand_over()
        super().save()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        self._hand_over()  # before it is closed
        super().finalize(status)

    def _hand_over(self) -> None:
        if "points" in vars(self):  # else there are none
            self.points.hand_over()


def _loggers(plan: Plan, step: int) -> Iterator[Logger]:
    """Training resumes at `step`: later points are of training that was lost and is repeated."""
    if plan.logger.name == "tensorboard":
        purge: dict[str, Any] = {"purge_step": step + 1} if plan.resume else {}
        yield BufferedTensorBoardLogger(plan.run_dir, name="tensorboard", version="", default_hp_metric=False, **purge)
    elif plan.logger.name == "csv":
        yield CSVLogger(plan.run_dir, name="csv", version=csv_version(plan.resume, step))
