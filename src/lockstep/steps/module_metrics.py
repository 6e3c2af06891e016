"""The record and the metrics of a user's LightningModule, which logs its values itself."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lockstep.checkpoint.content import Content, Progress
from lockstep.config_error import ConfigError
from lockstep.loaders.batch_slices import slice_batch
from lockstep.loaders.rank_data import RankData
from lockstep.loggers import Loggers
from lockstep.monitor.epoch import EpochMonitor
from lockstep.monitor.net import ONE_SAMPLE, Example, show_net
from lockstep.plan import Plan
from lockstep.record.recorder import Recorder
from lockstep.steps.loss_weight import loss_sum
from lockstep.steps.module_step import ModuleStep
from lockstep.targets.kinds import overrides

TRAIN_LOSS = "train/loss"


class ModuleMetrics:
    """`results` is empty: what the module logs is in its log."""

    results: Mapping[str, float] = {}
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

    def show_example(self) -> bool:
        """Return False: the module is shown with its first batch."""
        return False

    def show(self, batch: Any) -> None:
        show_module(self.plan, self.loggers, self.module, batch, self.data.device, self.data.transfer)

    def begin_evaluation(self, stage: str) -> None:
        """Drop the buffers of virtual ranks: as under DDP, all ranks evaluate with rank 0's."""
        if self.step.virtual is not None:
            self.step.virtual.buffers = {}

    def end_stage(
        self, stage: str, position: Progress, within: bool, work: Mapping[str, float]
    ) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return no metrics, and the curves of an epoch's work."""
        return {}, work if stage == "train" else {}

    @property
    def sums(self) -> Mapping[str, Tensor]:
        """Return zeros: what the module has logged is in the state of the module."""
        zeros = torch.zeros(len(self.plan.objective.sums), dtype=torch.float64)
        return {"epoch": zeros, "curve": zeros}

    def restore(self, content: Content, sums: Mapping[str, Tensor], window: Tensor) -> None:
        """No-op: see `sums`."""


def show_module(
    plan: Plan, loggers: Loggers, module: Any, batch: Any, device: torch.device, transfer: Callable[[Any], Any]
) -> None:
    """Show the module with its first batch. To be called by every rank.

    Args:
        transfer: moves a batch to the device, in the plan's dtype.
    """
    array = transfer(module.example_input_array)
    if isinstance(array, Mapping):
        example = Example((), array, "its example_input_array")
    elif array is not None:
        example = Example(array if isinstance(array, tuple) else (array,), of="its example_input_array")
    else:
        example = _example(module, batch) if overrides(module, "forward") else Example()
    with plan.strategy.tensors.full_weights(module):
        show_net(plan, loggers, module, example, device)


def _example(module: Any, batch: Any) -> Example:
    """Return the elements of a batch that `forward` takes; of a mapping those with the names of its parameters."""
    try:
        batch, of = slice_batch(batch, slice(1)), ONE_SAMPLE
    except ConfigError:
        of = "a batch"
    parameters = inspect.signature(module.forward).parameters.values()
    needed = [each for each in parameters if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    if isinstance(batch, Mapping) and not (len(needed) == 1 and needed[0].name not in batch):
        takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
        names = {each.name for each in parameters}
        return Example((), {key: value for key, value in batch.items() if takes_all or key in names}, of)
    if isinstance(batch, list | tuple):
        return Example((*batch[: max(1, len(needed))],), of=of)
    return Example((batch,), of=of)
