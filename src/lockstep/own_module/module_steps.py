"""What a session does around the steps of a user's LightningModule: what it logs becomes record and metrics."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.checkpoint.content import Content, Progress
from lockstep.loggers import Loggers
from lockstep.monitor.epoch import EpochMonitor
from lockstep.own_module.loaders import Taken
from lockstep.own_module.logged import Logged
from lockstep.own_module.loss_weight import Scale, loss_sum
from lockstep.own_module.net_example import show_module
from lockstep.own_module.rank_data import RankData
from lockstep.own_module.weighed_step import WeighedStep
from lockstep.own_module.whole_weights import WholeWeights as FullWeights
from lockstep.parallel.fixed_bucket_ddp import average_late
from lockstep.plan import Plan
from lockstep.record.recorder import Recorder
from lockstep.targets.kinds import overrides

TRAIN_LOSS = "train/loss"


class ModuleSteps:
    """`step` wraps the training step of the module, so that its loss is weighted.

    averaged: the `id`s of the parameters whose gradients DistributedDataParallel averages; None without it.
    """

    prefix = ""
    results: Mapping[str, float] = {}

    def __init__(self, plan: Plan, module: Any, log: Logged, data: RankData) -> None:
        self.plan, self.module, self.log, self.data = plan, module, log, data
        self.step = WeighedStep(plan, module, log, data.transfer)
        self.overrides_optimizer_step = overrides(module, "optimizer_step")
        self.weights = FullWeights(plan, module)
        self.averaged: frozenset[int] | None = None

    def open(self, loggers: Loggers) -> None:
        self.loggers, self.monitor = loggers, EpochMonitor(self.plan, loggers, self.module, ())

    def wrap(self) -> None:
        """Wrap methods of the module: steps are weighted, hooks see full weights where they are sharded."""
        self.step.wrap()
        self.weights.wrap()

    def watch(self, callbacks: Iterable[Any], optimizers: Sequence[Optimizer], wrapped: object) -> None:
        """Take over the callbacks of the run and what the module has configured.

        Args:
            wrapped: what averages gradients, a FixedBucketDDP or anything else.
        """
        self.weights.wrap_callbacks(callbacks)
        self.weights.take_optimizers(optimizers)
        self.averaged = getattr(wrapped, "averaged", None)

    def virtual_optimizers(self, optimizers: Callable[..., Any]) -> Callable[..., Any]:
        """Return the module's `optimizers` method as a virtual rank may have it."""
        return self.step.stepless(optimizers)

    # a batch of training

    def begin_epoch(self, position: Progress) -> None:
        """No-op: what the module logs is begun by `log`."""

    def begin_batch(self, share: Taken, position: Progress, batches: int) -> None:
        """Begin a batch of an optimizer step that has so many."""
        self.step.begin(share, batches)

    @property
    def samples(self) -> int:
        """This process's samples of the batch."""
        return self.step.samples

    def backward(self, loss: Tensor, batches: int, scale: Scale | None) -> None:
        self.step.backward(loss, batches, scale)

    def before_optimizer_step(self, recorder: Recorder, optimizer: Optimizer, resumed: bool) -> Sequence[Tensor]:
        """Return the norms of the gradients, which are complete and averaged over ranks."""
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if not parameters:  # an optimizer stands in where configure_optimizers returns none
            return []
        self.step.require_averaged(parameters, resumed)
        if self.averaged is not None:
            average_late(parameters, self.averaged)
        return recorder.norms(parameters)

    def record_batch(self, recorder: Recorder) -> None:
        share, count, loss_tensor = self.step.taken, self.step.samples, self.step.loss
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
        """Drop the buffers of virtual ranks: as under DDP all ranks take over rank 0's to evaluate."""
        if self.step.virtual is not None:
            self.step.virtual.buffers = {}

    def end_stage(
        self, stage: str, position: Progress, within: bool, work: Mapping[str, float]
    ) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return no metrics, since the module logs its own, and what an epoch's training has taken."""
        return {}, work if stage == "train" else {}

    def end_epoch(self, position: Progress, validated: bool) -> None:
        """Show histograms of weights: what a module's outputs mean only it knows."""
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
