"""The steps of a TaskModule: the weight of their loss; the record, curves, metrics and pictures, from exact sums."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.checkpoint.content import Content, Progress
from lockstep.data.samples import SampleData
from lockstep.data.tensors import Batch, TensorData
from lockstep.loaders.rank_loader import BatchShare
from lockstep.loggers import Loggers
from lockstep.monitor.epoch import EpochMonitor
from lockstep.monitor.net import Example, show_net
from lockstep.parallel.messages import all_reduce_sums
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.record.recorder import Recorder
from lockstep.run_files import save_confusion
from lockstep.steps.loss_weight import Step, loss_weight
from lockstep.steps.task_module import TaskModule
from lockstep.sums.running import BatchStats, EvaluationSums, RunningSums
from lockstep.sums.step_sums import StepCounts, StepCurve
from lockstep.targets.kinds import replace_method

if TYPE_CHECKING:
    from lockstep.parallel.global_dropout import GlobalMasks
    from lockstep.parallel.virtual_ranks import VirtualRanks


class TaskStep(Step):
    """`stats`: the sums of the last training batch; `epoch`: of an epoch; `evaluation`: of a split.

    confusion: the counts (true, predicted) of the latest validation, over all ranks, if there are classes.
    counts: corrects the gradients if some targets are ignored.
    virtual: the ranks that the net's forward runs in turn; None without strategy=virtual.
    """

    evaluation: EvaluationSums

    def __init__(
        self, plan: Plan, module: TaskModule, masks: "GlobalMasks | None", splits: TensorData | SampleData | None
    ) -> None:
        """Create the step of a module.

        Args:
            masks: of a dropout that does not depend on the world size.
            splits: the data, unless it is in a user's loaders.
        """
        self.plan, self.module, self.masks, self.splits = plan, module, masks, splits
        is_virtual = plan.strategy.layout(plan.devices).virtual_ranks > 1
        self.virtual: VirtualRanks | None = module.compute if is_virtual else None  # type: ignore[assignment]
        self.device, *_ = plan.strategy.devices(plan)
        self.counts = StepCounts(plan.objective, self.device)
        self.epoch, self.curve = RunningSums(plan.objective), StepCurve(plan.objective, self.device)
        self.results: dict[str, float] = {}
        self.confusion: Tensor | None = None
        self.stats: BatchStats = ()
        self.epoch_is_summed = False
        module.sums = self

    def __deepcopy__(self, _: object) -> "TaskStep":
        """Return the same object: a copy of the module, as for an average of weights, adds to the same sums."""
        return self

    def open(self, loggers: Loggers) -> None:
        shape = (self.splits if isinstance(self.splits, TensorData) else self.plan.data).shape  # type: ignore[union-attr]
        self.loggers, self.monitor = loggers, EpochMonitor(self.plan, loggers, self.module.net, shape)

    def wrap(self) -> None:
        """Weight the loss in `backward`, which Lightning's own loop calls."""
        if hasattr(self.module, "backward"):
            replace_method(
                self.module,
                "backward",
                lambda original, loss, *rest, **options: original(loss * self.weight, *rest, **options),
            )

    def show(self) -> None:
        """Show a copy of the net, before a strategy wraps it, with a sample of its data unless they are in loaders."""
        inputs = () if self.splits is None else (self.splits.first(dtype_of(self.plan)).to(self.device),)
        show_net(self.plan, self.loggers, copy.deepcopy(self.module.net).to(self.device), Example(inputs), self.device)

    # called by the module

    def training_batch(self, stats: BatchStats) -> None:
        self.stats = stats
        self.counts.add(stats)

    def evaluation_batch(self, stats: BatchStats, outputs: Any, batch: Batch) -> None:
        self.evaluation.add(stats, outputs, batch.targets, batch.inputs)

    # a batch of training

    def begin_epoch(self, position: Progress) -> None:
        self.curve.resume(self.curve.sums if position.batch else RunningSums(self.plan.objective))

    def begin(self, share: BatchShare, position: Progress, batches: int) -> None:
        """Begin a batch of an optimizer step that has `batches` of them."""
        self.begin_evaluation_batch(share)
        self.weight = loss_weight(self.plan, share, 1, self.plan.world_size, batches)
        if self.masks is not None:
            self.masks.epoch, self.masks.batch = position.epochs, position.batch

    def begin_evaluation_batch(self, share: BatchShare) -> None:
        """Have the module compute with no samples if the batch is a dummy, because FSDP's ranks meet in each layer."""
        self.share = share
        if self.module.is_dummy_batch is not share.is_dummy:  # setting an attribute of a module takes 2 µs
            self.module.is_dummy_batch = share.is_dummy

    def gradient_norms(self, recorder: Recorder, optimizer: Optimizer) -> Sequence[Tensor]:
        """Return the norms of the gradients, which are complete and averaged over ranks."""
        self.counts.weigh(recorder.parameters)
        return recorder.norms(recorder.parameters)

    def record_batch(self, recorder: Recorder) -> None:
        recorder.batch(self.stats, self.share.ids if self.samples else self.share.ids[:0])
        self.epoch.add(self.stats)

    def log_points(self, step: int | None, rate: float) -> None:
        """Add the batch to the curves; every N optimizer steps log a point over all ranks.

        Args:
            step: that ends with this batch, if one does.
        """
        if self.plan.logger:
            self.curve.add(self.stats)
            if step is not None and step % self.plan.log_every_n_steps == 0:
                self.loggers.log_metrics(self.curve.point(rate), step)

    # evaluations and the ends of epochs

    def begin_evaluation(self, stage: str) -> None:
        """Begin the sums of an evaluation, and collect samples of a validation to be shown."""
        samples = self.monitor.begin_validation() if stage == "val" else None
        self.evaluation = EvaluationSums(self.plan.objective, self.device, samples)

    def end_stage(
        self, stage: str, within: bool, work: Mapping[str, float]
    ) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return the metrics of a stage over all ranks, and the curves to log.

        The sums of a training epoch are reduced in one message with those of its validation, if it has one.

        Args:
            within: whether the epoch goes on after this validation, or is interrupted here.
            work: curves of the epoch's work.
        """
        if stage == "test" or (stage == "val" and within):
            totals = all_reduce_sums(self.evaluation.totals, self.device)
            metrics = self.plan.objective.metrics(stage, totals)
            self.results |= metrics
            if stage == "test" and self.loggers.rank == 0 and self.plan.objective.classes:
                save_confusion(Path(self.plan.run_dir), self.plan.objective.confusion_of(totals).tolist())
            return metrics, metrics
        was_summed, self.epoch_is_summed = self.epoch_is_summed, stage == "val"
        if was_summed and stage == "train":
            return {}, {}
        metrics = self._end_epoch(self.evaluation.totals if stage == "val" else None)
        if within:
            return metrics, {}
        trained = {name: value for name, value in self.results.items() if name.startswith("train/")}
        curves = {**trained, **metrics, **work}
        for name in ("train/loss", "samples_per_second"):  # these are curves over steps
            curves.pop(name, None)
        return metrics, curves

    def _end_epoch(self, validation: Tensor | None) -> dict[str, float]:
        """Compute the metrics of training and validation; return the latter.

        Args:
            validation: this rank's `EvaluationSums.totals`, sent in one message with the sums of training.
        """
        objective, sums, self.confusion = self.plan.objective, self.epoch.sums, None
        self.epoch = RunningSums(objective)
        totals = all_reduce_sums(sums if validation is None else torch.cat([sums, validation]), self.device)
        self.results |= objective.metrics("train", totals[: len(sums)])
        if validation is None:
            return {}
        metrics = objective.metrics("val", totals[len(sums) :])
        self.results |= metrics
        if objective.classes:
            self.confusion = objective.confusion_of(totals[len(sums) :])
        return metrics

    # checkpoints

    @property
    def sums(self) -> Mapping[str, Tensor]:
        """Return this rank's sums since the last all-reduce."""
        return {"epoch": self.epoch.sums, "curve": self.curve.sums.sums}

    def restore(self, content: Content, sums: Mapping[str, Tensor], window: Tensor) -> None:
        """Restore this rank's sums from a checkpoint; `window` are those of the unfinished optimizer step."""
        self.counts.sums = RunningSums(self.plan.objective, window)
        self.epoch = RunningSums(self.plan.objective, sums["epoch"])
        self.curve.resume(RunningSums(self.plan.objective, sums["curve"]))
        self.results |= content.results
