"""What a TaskModule measures: exact sums become the record, curves, metrics and pictures."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from lockstep import schemas
from lockstep.checkpoint.content import PREFIX, Content, Progress
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
from lockstep.steps.task_step import TaskStep
from lockstep.sums.epoch_metrics import EpochMetrics, StepCurve
from lockstep.sums.running import BatchStats, EvaluationSums, RunningSums


class TaskMetrics:
    """`stats`: what the last training batch has added to the sums; `evaluation`: the sums of a split.

    prefix: in front of the names of weights in checkpoints.
    """

    prefix = PREFIX
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

    def log_points(self, step: int | None, rate: float, epoch: int) -> None:
        """Add the batch to the curves; every N optimizer steps a point, of all ranks.

        Args:
            step: that ends with this batch, if one does.
        """
        if self.plan.logger:
            self.curve.add(self.stats)
            if step is not None and step % self.plan.log_every_n_steps == 0:
                self.loggers.log_metrics(self.curve.point(rate), step)

    def show_example(self) -> bool:
        """Show the net by a sample of its data; return False where only a batch tells what it takes."""
        if self.splits is not None:
            self._show(self.splits.first(dtype_of(self.plan)))
        return self.splits is not None

    def show(self, batch: Any) -> None:
        """Show the net by the first sample of a batch."""
        self._show(self.module.prepared(batch).inputs[:1])

    def _show(self, inputs: Tensor) -> None:
        """Show a copy of the net, before anything wraps it, by a batch of one sample."""
        net, example = copy.deepcopy(self.net).to(self.device), Example((inputs.to(self.device),))
        show_net(self.plan, self.loggers, net, example, self.device)

    # evaluations and the ends of epochs

    def begin_evaluation(self, stage: str) -> None:
        """Begin the sums of an evaluation, with what is kept of a validation to be shown."""
        shown = self.monitor.begin_validation() if stage == "val" else None
        self.evaluation = EvaluationSums(self.plan.objective, self.device, shown)

    def end_stage(
        self, stage: str, position: Progress, within: bool, work: Mapping[str, float]
    ) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return the metrics of a stage over all ranks, and what of `work` is still to be logged: nothing.

        A training epoch's sums meet those of the other ranks in the message of its validation, if it has one.

        Args:
            within: whether the epoch goes on, behind this validation; or is interrupted here.
            work: what the epoch's training has taken, for the loggers.
        """
        if stage == "test" or (stage == "val" and within):
            metrics, confusion = self.measured.end_evaluation(stage, self.evaluation.totals)
            if stage == "test" and self.context.rank == 0 and self.plan.objective.classes:
                save_confusion(Path(self.plan.run_dir), confusion.tolist())
            epoch = position.begun if stage == "test" else position.epochs
            self.loggers.log_metrics({**metrics, "epoch": epoch}, position.steps)
        elif stage == "val":
            metrics = self.measured.end_epoch(self.evaluation.totals)
            self._log_epoch(metrics, position, work)
            self.epoch_is_summed = True
        else:
            metrics = {}
            if not self.epoch_is_summed:
                self.measured.end_epoch(None)
                if not within:
                    self._log_epoch({}, position, work)
            self.epoch_is_summed = False
        return metrics, {}

    def _log_epoch(self, validation: Mapping[str, float], position: Progress, work: Mapping[str, float]) -> None:
        """`train/loss` the loggers have as a curve over steps."""
        trained = {name: value for name, value in self.measured.results.items() if name.startswith("train/")}
        trained.pop("train/loss", None)
        work = {name: value for name, value in work.items() if name != "samples_per_second"}  # it is a curve over steps
        values = {**trained, **validation, **work, "epoch": position.epochs}
        self.loggers.log_metrics(values, position.steps)
        self.monitor.end_epoch(bool(validation), self.measured.confusion, position.epochs + 1, position.steps)

    def end_epoch(self, position: Progress, validated: bool) -> None:
        """No-op: its metrics and pictures are logged with its sums."""

    def is_best_measured(self, position: Progress, validated: bool, values: Mapping[str, float]) -> bool:
        """Whether the epoch that is done has measured what says which checkpoint is best."""
        return self.plan.steps.validates_after(position.epochs) or not self.plan.monitor[0].startswith("val/")

    @property
    def results(self) -> Mapping[str, float]:
        return self.measured.results

    # checkpoints, metrics.json

    @property
    def sums(self) -> Mapping[str, Tensor]:
        """Return this rank's sums since the last all-reduce."""
        return {"epoch": self.measured.epoch.sums, "curve": self.curve.sums.sums}

    def restore(self, content: Content, sums: Mapping[str, Tensor], window: Tensor) -> None:
        """Take over what a checkpoint holds of this rank's sums; `window` are those of the optimizer step under way."""
        self.step.counts.sums = RunningSums(self.plan.objective, window)
        self.measured.epoch = RunningSums(self.plan.objective, sums["epoch"])
        self.curve.resume(RunningSums(self.plan.objective, sums["curve"]))
        self.measured.results = dict(content.results)

    def final_metrics(self) -> Mapping[str, float]:
        """Return what metrics.json has beside the results."""
        if not isinstance(self.plan.data, schemas.Line):
            return {}
        from lockstep.data.line import fitted_line

        return fitted_line(self.net, self.plan.data.predict)
