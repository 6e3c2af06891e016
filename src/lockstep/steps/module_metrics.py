"""What a user's LightningModule measures: what it logs becomes the record and metrics."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lockstep.checkpoint.content import Content, Progress
from lockstep.loaders.rank_data import RankData
from lockstep.loggers import Loggers
from lockstep.monitor.epoch import EpochMonitor
from lockstep.plan import Plan
from lockstep.record.recorder import Recorder
from lockstep.steps.loss_weight import loss_sum
from lockstep.steps.module_step import ModuleStep
from lockstep.steps.net_example import show_module

TRAIN_LOSS = "train/loss"


class ModuleMetrics:
    """`prefix` and `results` are empty: weights and metrics have the module's own names."""

    prefix = ""
    results: Mapping[str, float] = {}

    def __init__(self, plan: Plan, step: ModuleStep, data: RankData) -> None:
        self.plan, self.step, self.data = plan, step, data
        self.module, self.log = step.module, step.log

    def open(self, loggers: Loggers) -> None:
        self.loggers, self.monitor = loggers, EpochMonitor(self.plan, loggers, self.module, ())

    # a batch of training

    def begin_epoch(self, position: Progress) -> None:
        """No-op: what the module logs is begun by `log`."""

    def record_batch(self, recorder: Recorder) -> None:
        share, count, loss_tensor = self.step.share, self.step.samples, self.step.loss
        loss: Any = 0.0
        if loss_tensor is not None:
            loss = loss_tensor if loss_tensor.is_cuda else loss_tensor.item()
            self._log_loss(loss)
        recorder.batch((loss_sum(self.plan, loss, count), count), share.ids if count else share.ids[:0])

    def _log_loss(self, loss: Any) -> None:
        """Log the loss of the epoch, unless the module logs something of this name itself."""
        logged = self.log.stages.get("train", {}).get(TRAIN_LOSS)
        if logged is None or not logged.logger:
            self.log.log(TRAIN_LOSS, loss, logger=False, on_step=False, on_epoch=True)

    def log_points(self, step: int | None, rate: float, epoch: int) -> None:
        """No-op: the module logs its points itself."""

    def show_example(self) -> bool:
        """Return False: the module is shown with its first batch."""
        return False

    def show(self, batch: Any) -> None:
        data = self.data
        show_module(self.plan, self.loggers, self.module, batch, data.device, data.transfer)

    # evaluations and the ends of epochs

    def begin_evaluation(self, stage: str) -> None:
        """Drop the buffers of virtual ranks: as under DDP, all ranks evaluate with rank 0's."""
        if self.step.virtual is not None:
            self.step.virtual.buffers = {}

    def end_stage(
        self, stage: str, position: Progress, within: bool, work: Mapping[str, float]
    ) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return no metrics, since the module logs its own, and what an epoch's training has taken."""
        return {}, work if stage == "train" else {}

    def end_epoch(self, position: Progress, validated: bool) -> None:
        """Show histograms of weights."""
        self.monitor.end_epoch(validated, None, position.epochs, position.steps)

    def is_best_measured(self, position: Progress, validated: bool, values: Mapping[str, float]) -> bool:
        """Whether the epoch that is done has measured what says which checkpoint is best."""
        validates = self.data.runs("val") and self.plan.steps.reaches_validation
        return validated or not validates or self.plan.monitor[0] in values

    # checkpoints, metrics.json

    @property
    def sums(self) -> Mapping[str, Tensor]:
        """Return zeros: what the module has logged is in the state of the module."""
        none = torch.zeros(len(self.plan.objective.sums), dtype=torch.float64)
        return {"epoch": none, "curve": none}

    def restore(self, content: Content, sums: Mapping[str, Tensor], window: Tensor) -> None:
        """No-op: see `sums`."""

    def final_metrics(self) -> Mapping[str, float]:
        return {}
