"""Evaluations: seeded, so that none depends on another one or on training, and with values over all ranks."""

from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback

from lockstep.base.random_state import random_state, restore_random_state, seed_by
from lockstep.engine.logged_values import widen_metrics
from lockstep.engine.session import Session
from lockstep.plan.step_plan import STAGES


def stage_of(trainer: pl.Trainer) -> str:
    """Return `train`, `val` or `test`."""
    return trainer.state.stage.dataloader_prefix  # type: ignore[return-value, union-attr]


class EvaluationCallback(Callback):
    """Seeds and measures evaluations. Runs before all other callbacks; `attach` in training.py calls its methods."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        session, stage = self.session, stage_of(trainer)
        if stage == "test":
            session.phases.begin_epoch()
        else:
            session.phases.synchronize()
            session.results.validated = True
        session.random = random_state(session.plan.strategy.devices(session.plan))
        widen_metrics(session.plan, session.module)
        session.log.begin_epoch(stage)
        if session.step.virtual is not None:
            session.step.virtual.buffers = {}  # as under DDP, all ranks evaluate with rank 0's
        self._seed(stage)

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        session, stage = self.session, stage_of(trainer)
        session.step.share, session.step.loader = session.data.next_share(stage, dataloader_idx), dataloader_idx
        has_several = len(session.data.by_stage[stage]) > 1
        session.log.begin_batch(stage, session.step.counted, dataloader_idx if has_several else None)
        self._seed(stage, dataloader_idx, batch_idx, session.plan.data_rank(session.context.rank))

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        self.session.results.update_step_metrics()

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Reduce the values of the stage, so that its last hooks can read them."""
        self._seed(stage_of(trainer))
        self.session.results.reduce_stage(stage_of(trainer))

    on_test_start, on_test_batch_start = on_validation_start, on_validation_batch_start
    on_test_batch_end, on_test_epoch_end = on_validation_batch_end, on_validation_epoch_end

    def _seed(self, stage: str, loader: int = -1, batch_idx: int = -1, rank: int = 0) -> None:
        """Seed the generators for a batch on a rank; without a batch for the hooks around them, alike on every rank."""
        session = self.session
        epoch = session.progress.position.epochs if stage == "val" else 0
        key = (session.plan.seed, epoch, STAGES.index(stage), loader, batch_idx)
        seed_by(*key, rank)
        if session.device.type == "cuda":
            torch.cuda.manual_seed(torch.initial_seed())
        if session.step.virtual is not None:
            session.step.virtual.evaluation = key

    def end_batch(self, *_: Any) -> None:
        self.session.log.enter(stage_of(self.session.trainer))

    def end_stage(self) -> None:
        self.session.results.end_stage(stage_of(self.session.trainer))

    def end(self) -> None:
        """Restore the generators of training; the evaluation's time does not count as training."""
        session = self.session
        restore_random_state(session.random, session.plan.strategy.devices(session.plan))
        session.random = None
        session.log.enter("train")
        if session.step.virtual is not None:
            session.step.virtual.evaluation = ()
        session.phases.begin(stage_of(session.trainer))
