"""The record, curves, metrics and pictures of a TaskModule, from exact sums."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from lockstep.checkpoint.content import Content, Progress
from lockstep.data.samples import SampleData
from lockstep.data.tensors import Batch, TensorData
from lockstep.launch.topology import RankContext
from lockstep.loggers import Loggers
from lockstep.monitor.epoch import EpochMonitor
from lockstep.monitor.net import Example, show_net
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.record.recorder import Recorder
from lockstep.run_files import save_confusion
from lockstep.steps.task_module import TaskStep
from lockstep.sums.epoch_metrics import EpochMetrics, StepCurve
from lockstep.sums.running import BatchStats, EvaluationSums, RunningSums


class TaskMetrics:
    """`stats`: the sums of the last training batch; `evaluation`: the sums of a split."""

    evaluation: EvaluationSums

    def __init__(
        self, plan: Plan, context: RankContext, step: TaskStep, splits: TensorData | SampleData | None
    ) -> None:
        """`splits`: the data, unless it is in a user's loaders."""
        self.plan, self.context, self.step, self.module = plan, context, step, step.module
        self.net, self.splits = self.module.net, splits
        self.device, *_ = plan.strategy.devices(plan)
        self.measured, self.curve = EpochMetrics(plan.objective, self.device), StepCurve(plan.objective, self.device)
        self.stats: BatchStats = ()
        self.epoch_is_summed = False
        self.module.sums = self

    def __deepcopy__(self, _: object) -> "TaskMetrics":
        """Return the same object: a copy of the module, as for an average of weights, adds to the same sums."""
        return self

    def open(self, loggers: Loggers) -> None:
        shape = (self.plan.data if self.splits is None else self.splits).shape  # type: ignore[union-attr]
        self.loggers, self.monitor = loggers, EpochMonitor(self.plan, loggers, self.net, shape)

    @property
    def results(self) -> Mapping[str, float]:
        """Return the latest metrics."""
        return self.measured.results

    @property
    def confusion(self) -> Tensor | None:
        """Return the confusion counts of the latest validation, if there are classes."""
        return self.measured.confusion

    # called by the module's steps

    def training_batch(self, stats: BatchStats) -> None:
        self.stats = stats
        self.step.counts.add(stats)

    def evaluation_batch(self, stats: BatchStats, outputs: Any, batch: Batch) -> None:
        self.evaluation.add(stats, outputs, batch.targets, batch.inputs)

    # a batch of training

    def begin_epoch(self, position: Progress) -> None:
        self.curve.resume(self.curve.sums if position.batch else RunningSums(self.plan.objective))

    def record_batch(self, recorder: Recorder) -> None:
        share = self.step.share
        recorder.batch(self.stats, share.ids[:0] if share.is_dummy else share.ids)
        self.measured.epoch.add(self.stats)

    def log_points(self, step: int | None, rate: float) -> None:
        """Add the batch to the curves; every N optimizer steps log a point over all ranks.

        Args:
            step: that ends with this batch, if one does.
        """
        if self.plan.logger:
            self.curve.add(self.stats)
            if step is not None and step % self.plan.log_every_n_steps == 0:
                self.loggers.log_metrics(self.curve.point(rate), step)

    def show(self) -> None:
        """Show a copy of the net, before a strategy wraps it, with a sample of its data unless they are in loaders."""
        inputs = () if self.splits is None else (self.splits.first(dtype_of(self.plan)).to(self.device),)
        show_net(self.plan, self.loggers, copy.deepcopy(self.net).to(self.device), Example(inputs), self.device)

    # evaluations and the ends of epochs

    def begin_evaluation(self, stage: str) -> None:
        """Begin the sums of an evaluation, and collect samples of a validation to be shown."""
        samples = self.monitor.begin_validation() if stage == "val" else None
        self.evaluation = EvaluationSums(self.plan.objective, self.device, samples)

    def end_stage(
        self, stage: str, position: Progress, within: bool, work: Mapping[str, float]
    ) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return the metrics of a stage over all ranks, and the curves to log.

        The sums of a training epoch are reduced in one message with those of its validation, if it has one.

        Args:
            within: whether the epoch goes on after this validation, or is interrupted here.
            work: curves of the epoch's work.
        """
        if stage == "test" or (stage == "val" and within):
            metrics, confusion = self.measured.end_evaluation(stage, self.evaluation.totals)
            if stage == "test" and self.context.rank == 0 and self.plan.objective.classes:
                save_confusion(Path(self.plan.run_dir), confusion.tolist())
            return metrics, metrics
        was_summed, self.epoch_is_summed = self.epoch_is_summed, stage == "val"
        if was_summed and stage == "train":
            return {}, {}
        metrics = self.measured.end_epoch(self.evaluation.totals if stage == "val" else None)
        if within:
            return metrics, {}
        trained = {name: value for name, value in self.results.items() if name.startswith("train/")}
        curves = {**trained, **metrics, **work}
        for name in ("train/loss", "samples_per_second"):  # these are curves over steps
            curves.pop(name, None)
        return metrics, curves

    # checkpoints

    @property
    def sums(self) -> Mapping[str, Tensor]:
        """Return this rank's sums since the last all-reduce."""
        return {"epoch": self.measured.epoch.sums, "curve": self.curve.sums.sums}

    def restore(self, content: Content, sums: Mapping[str, Tensor], window: Tensor) -> None:
        """Restore this rank's sums from a checkpoint; `window` are those of the unfinished optimizer step."""
        self.step.counts.sums = RunningSums(self.plan.objective, window)
        self.measured.epoch = RunningSums(self.plan.objective, sums["epoch"])
        self.curve.resume(RunningSums(self.plan.objective, sums["curve"]))
        self.measured.results = dict(content.results)
