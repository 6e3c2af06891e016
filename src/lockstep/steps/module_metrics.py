"""The record and the metrics of a user's LightningModule, which logs its values itself."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lockstep.checkpoint.content import Content, Progress
from lockstep.loaders.rank_data import RankData
from lockstep.loggers import Loggers
from lockstep.monitor.epoch import EpochMonitor
from lockstep.monitor.net import Example, show_net
from lockstep.plan import Plan
from lockstep.record.recorder import Recorder
from lockstep.steps.loss_weight import loss_sum
from lockstep.steps.module_step import ModuleStep

TRAIN_LOSS = "train/loss"


class ModuleMetrics:
    """`results` and `sums` are empty: what the module logs is in its log."""

    results: Mapping[str, float] = {}
    sums: Mapping[str, Tensor] = {}
    confusion: Tensor | None = None

    def __init__(self, plan: Plan, step: ModuleStep, data: RankData) -> None:
        self.plan, self.step, self.data = plan, step, data
        self.module, self.log = step.module, step.log

    def open(self, loggers: Loggers) -> None:
        self.loggers, self.monitor = loggers, EpochMonitor(self.plan, loggers, self.module, ())

    def begin_epoch(self, position: Progress) -> None:
        """No-op: the log has begun the epoch."""

    def record_batch(self, recorder: Recorder) -> None:
        """Record the loss of a training batch; log it as train/loss unless the module logs something of this name."""
        share, count, loss_tensor = self.step.share, self.step.samples, self.step.loss
        loss: Any = 0.0
        if loss_tensor is not None:
            loss = loss_tensor if loss_tensor.is_cuda else loss_tensor.item()
            logged = self.log.stages.get("train", {}).get(TRAIN_LOSS)
            if logged is None or not logged.logger:
                self.log.log(TRAIN_LOSS, loss, logger=False, on_step=False, on_epoch=True)
        recorder.batch((loss_sum(self.plan, loss, count), count), share.ids if count else share.ids[:0])

    def log_points(self, step: int | None, rate: float) -> None:
        """No-op: the module logs its curves."""

    def show(self) -> None:
        """Show the module with its `example_input_array`, if it has one. To be called by every rank."""
        array = self.data.transfer(self.module.example_input_array)
        if isinstance(array, Mapping):
            example = Example((), array)
        else:
            example = Example(array if isinstance(array, tuple) else () if array is None else (array,))
        with self.plan.strategy.tensors.full_weights(self.module):
            show_net(self.plan, self.loggers, self.module, example, self.data.device)

    def begin_evaluation(self, stage: str) -> None:
        """Drop the buffers of virtual ranks: as under DDP, all ranks evaluate with rank 0's."""
        if self.step.virtual is not None:
            self.step.virtual.buffers = {}

    def end_stage(
        self, stage: str, position: Progress, within: bool, work: Mapping[str, float]
    ) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return no metrics, and the curves of an epoch's work."""
        return {}, work if stage == "train" else {}

    def restore(self, content: Content, sums: Mapping[str, Tensor], window: Tensor) -> None:
        """No-op: there are no sums."""
