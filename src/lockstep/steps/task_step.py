"""The steps of a TaskModule: the weight of their loss; the record, curves, metrics and pictures, from exact sums."""

import copy
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.checkpoint.content import Content, Progress
from lockstep.data.samples import Splits
from lockstep.loaders.rank_loader import BatchShare
from lockstep.loggers import Loggers
from lockstep.monitor.epoch import EpochMonitor
from lockstep.monitor.net import show_net, shows_net
from lockstep.objectives.objective import LOSS, SAMPLES
from lockstep.parallel.messages import all_reduce_sums
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.record.recorder import Recorder
from lockstep.run_files import save_confusion
from lockstep.schemas.target import BuiltIn
from lockstep.steps.loss_weight import Step, loss_weight
from lockstep.steps.task_module import TaskModule
from lockstep.sums.running import BatchStats, EvaluationSums, RunningSums

if TYPE_CHECKING:
    from lockstep.parallel.global_dropout import GlobalMasks
    from lockstep.parallel.virtual_ranks import VirtualRanks


class TaskStep(Step):
    """`stats`: the sums of the last training batch; `epoch`: of an epoch; `evaluation`: of a split.

    confusion: the counts (true, predicted) of the latest validation, over all ranks, if there are classes.
    counts: the sums of the current optimizer step, if some targets are ignored.
    curve: the sums since the last point on the curves, and `point_time` its time.
    virtual: the ranks that the net's forward runs in turn; None without strategy=virtual.
    """

    evaluation: EvaluationSums

    def __init__(
        self, plan: Plan, module: TaskModule, masks: "GlobalMasks | None", splits: Splits | None, loggers: Loggers
    ) -> None:
        """`masks`: of a dropout that does not depend on the world size; `splits`: unless data is in loaders."""
        self.plan, self.module, self.masks = plan, module, masks
        is_virtual = plan.strategy.layout(plan.devices).virtual_ranks > 1
        self.virtual: VirtualRanks | None = module.compute if is_virtual else None  # type: ignore[assignment]
        self.device, *_ = plan.strategy.devices(plan)
        self.counts, self.epoch, self.curve = (RunningSums(plan.objective) for _ in range(3))
        self.point_time = 0.0
        self.results: dict[str, float] = {}
        self.confusion: Tensor | None = None
        self.stats: BatchStats = ()
        self.epoch_is_summed = False
        shape = (splits if isinstance(plan.data, BuiltIn) else plan.data).shape  # type: ignore[union-attr]
        self.loggers, self.monitor = loggers, EpochMonitor(plan, loggers, module.net, shape)
        if shows_net(plan):  # a copy, before a strategy wraps it; with a sample of the data unless that is in loaders
            inputs = () if splits is None else (splits.first(dtype_of(plan)).to(self.device),)
            show_net(plan, loggers, copy.deepcopy(module.net).to(self.device), inputs, self.device)
        module.sums = self

    def __deepcopy__(self, _: object) -> "TaskStep":
        """Return the same object: a copy of the module, as for an average of weights, adds to the same sums."""
        return self

    # called by the module

    def training_batch(self, stats: BatchStats) -> None:
        self.stats = stats
        if self.plan.objective.ignored is not None:
            self.counts.add(stats)

    # a batch of training

    def begin_epoch(self, position: Progress) -> None:
        self.point_time = time.perf_counter()
        if not position.batch:
            self.curve = RunningSums(self.plan.objective)

    def begin(self, share: BatchShare, position: Progress, batches: int) -> None:
        """Begin a batch of an optimizer step that has `batches` of them."""
        self.set_share(share)
        self.weight = loss_weight(self.plan, share, 1, self.plan.world_size, batches)
        if self.masks is not None:
            self.masks.epoch, self.masks.batch = position.epochs, position.batch

    def set_share(self, share: BatchShare, loader: int = 0) -> None:
        """Have the module compute with no samples if the batch is a dummy, because FSDP's ranks meet in each layer."""
        self.share = share
        if self.module.is_dummy_batch is not share.is_dummy:  # setting an attribute of a module takes 2 µs
            self.module.is_dummy_batch = share.is_dummy

    def gradient_norms(self, recorder: Recorder, optimizer: Optimizer) -> Sequence[Tensor]:
        """Return the norms of the gradients, which are complete and averaged over ranks.

        If some targets are ignored, these are of a mean over samples until here, where it is known how many count.
        """
        if self.plan.objective.ignored is not None:
            sums = self.counts.reduce(self.device)
            if counted := self.plan.objective.divisor(sums):
                for parameter in recorder.parameters:
                    if parameter.grad is not None:
                        parameter.grad.mul_(sums[SAMPLES] / counted)
        return recorder.norms(recorder.parameters)

    def record_batch(self, recorder: Recorder) -> None:
        recorder.batch(self.stats, self.share.ids if self.samples else self.share.ids[:0])
        self.epoch.add(self.stats)

    def log_points(self, step: int | None, rate: float) -> None:
        """Add the batch, which may end an optimizer step, to the curves; every N steps log a point, of all ranks."""
        if self.plan.logger:
            self.curve.add(self.stats)
            if step is not None and step % self.plan.log_every_n_steps == 0:
                sums, seconds = self.curve.reduce(self.device), time.perf_counter() - self.point_time
                loss = sums[LOSS] / (self.plan.objective.divisor(sums) or math.nan)
                speed = sums[SAMPLES] / seconds
                self.point_time += seconds
                self.loggers.log_metrics({"train/loss": loss, "lr": rate, "samples_per_second": speed}, step)

    # evaluations and the ends of epochs

    def begin_evaluation(self, stage: str) -> None:
        """Begin the sums of an evaluation, and collect samples of a validation to be shown."""
        samples = self.monitor.begin_validation() if stage == "val" else None
        self.evaluation = EvaluationSums(self.plan.objective, self.device, samples)

    def end_stage(
        self, stage: str, within: bool, work: Mapping[str, float]
    ) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return the metrics of a stage over all ranks, and the curves to log.

        The sums of a training epoch are reduced with those of its validation, unless that is `within` the epoch.
        """
        objective, measured = self.plan.objective, dict[str, float]()
        sums = {} if stage == "train" else {stage: self.evaluation.totals}
        ends_epoch = stage == "train" or (stage == "val" and not within)
        if ends_epoch and not self.epoch_is_summed:
            sums = {"train": self.epoch.sums, **sums}
            self.epoch = RunningSums(objective)
        self.epoch_is_summed = stage == "val" and ends_epoch
        if not sums:
            return {}, {}
        totals = all_reduce_sums(torch.cat([*sums.values()]), self.device)
        for name, total in zip(sums, torch.split(totals, [len(each) for each in sums.values()]), strict=True):
            measured |= objective.metrics(name, total)
            if name != "train" and objective.classes:
                self.confusion = objective.confusion_of(total)
        self.results |= measured
        if stage == "test" and self.loggers.rank == 0 and self.confusion is not None:
            save_confusion(Path(self.plan.run_dir), self.confusion.tolist(), self.plan.data.labels)
        metrics = {name: value for name, value in measured.items() if not name.startswith("train/")}
        curves = {**measured, **work} if ends_epoch and not within else metrics
        for name in ("train/loss", "samples_per_second"):  # these are curves over steps
            curves.pop(name, None)
        return metrics, curves

    # checkpoints

    @property
    def sums(self) -> Mapping[str, Tensor]:
        """Return this rank's sums since the last all-reduce."""
        return {"epoch": self.epoch.sums, "curve": self.curve.sums}

    def restore(self, content: Content, sums: Mapping[str, Tensor], window: Tensor) -> None:
        """Restore this rank's sums from a checkpoint; `window` are those of the unfinished optimizer step."""
        self.counts, self.epoch, self.curve = (
            RunningSums(self.plan.objective, begun) for begun in (window, sums["epoch"], sums["curve"])
        )
        self.point_time = time.perf_counter()
        self.results |= content["results"]
