"""What both engines do before and after their loops, once: from a plan to what trains, from there to the metrics."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from lockstep import data, schemas
from lockstep.checkpoint.choice import resume_after_restart
from lockstep.checkpoint.content import Progress, own_names
from lockstep.checkpoint.reading import resume_state
from lockstep.checkpoint.saving import CheckpointManager
from lockstep.data.line import fitted_line
from lockstep.data.loader import to_device_if_fits
from lockstep.data.samples import SampleData
from lockstep.data.tensors import TensorData
from lockstep.launch.topology import RankContext
from lockstep.memory.allocation import disable_malloc_trim
from lockstep.monitor import open_loggers, work_of
from lockstep.monitor.epoch import EpochMonitor
from lockstep.monitor.net import Example, show_net, shows_net
from lockstep.parallel import convert_batchnorm, convert_dropout, show_shapes
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.random_state import seed_rank
from lockstep.record.digest import digest
from lockstep.record.recorder import Recorder
from lockstep.run_files import Metrics, save_confusion
from lockstep.seeding import build_model
from lockstep.sums.curve import StepCurve
from lockstep.sums.measured import Measured
from lockstep.sums.phases import Phases, seconds_range
from lockstep.sums.running import EvaluationSums, RunningSums
from lockstep.sums.step_counts import StepCounts
from lockstep.targets.task import make_task
from lockstep.time_limit import TimeLimit
from lockstep.torch_flags import torch_flags
from lockstep.world_dependence import heading


class Session:
    """One run in one rank's place. `recorder` and `checkpoints` are there where the plan trains.

    Each rank is a process, and has joined its peers: `lockstep.launch.worker` calls init_process_group and set_device.
    """

    recorder: Recorder
    checkpoints: CheckpointManager

    def __init__(self, plan: Plan, context: RankContext) -> None:
        """In this order: the net's weights are drawn before anything else, and are the same on every rank.

        Raises:
            ConfigError: the plan's data, net or checkpoint is not what the plan says.
        """
        disable_malloc_trim()
        self.plan = plan = resume_after_restart(plan, context.restarts)
        self.context = context
        loaders = isinstance(plan.data, schemas.Loaders)
        loaded: Any = plan.data if loaders else data.load_splits(plan.data, plan.seed, plan.task.samples)
        if isinstance(plan.task, schemas.OwnTask):
            make_task(plan.task)
        self.net = convert_batchnorm(plan, build_model(plan, loaded))
        self.masks = convert_dropout(plan, context.rank, self.net)
        show_shapes(plan, self.net)
        seed_rank(plan.seed, context.rank)  # from here on random numbers of its own
        self.start = resume_state(plan, self.net)
        self.device, *_ = plan.strategy.devices(plan)
        self.data: TensorData | SampleData = (
            to_device_if_fits(loaded, self.device) if isinstance(loaded, TensorData) else loaded
        )
        self.counts = StepCounts(plan.objective, self.device)
        self.measured, self.curve = Measured(plan.objective, self.device), StepCurve(plan.objective, self.device)
        self.phases = Phases()
        self.epoch_seconds: list[float] = []
        if plan.train:
            self.recorder = self.start.recorder(plan, context.rank, self.net)
            self.checkpoints = CheckpointManager(plan, context.rank, self.recorder)
        self.time_limit = TimeLimit(plan.trainer.seconds, context.rank, self.device)
        self.loggers = open_loggers(plan, context.rank, self.start.at.steps)
        self.monitor = EpochMonitor(plan, self.loggers, self.net, self.data.shape)
        if shows_net(plan) and not loaders:
            self.show_net(self.data.first(dtype_of(plan)))

    def show_net(self, inputs: Tensor) -> None:
        """A copy of it, by a batch of one sample: to be called before anything wraps it."""
        show_net(
            self.plan,
            self.loggers,
            copy.deepcopy(self.net).to(self.device),
            Example((inputs.to(self.device),)),
            self.device,
        )

    @property
    def heading(self) -> dict[str, str | int | float]:
        """What tells this run from others."""
        return heading(self.plan, self.net)

    @property
    def finished(self) -> bool:
        """Whether training was done when the run was interrupted: what is left is to be tested."""
        return self.plan.train and self.plan.trained(self.start.at.epochs, self.start.at.steps)

    @property
    def checks_first(self) -> bool:
        """Whether some batches are validated before training, of which nothing is kept. As in Lightning, not where a
        run begins at a checkpoint.
        """
        plan = self.plan
        return plan.trainer.num_sanity_val_steps != 0 and plan.validates and self.start.checkpoint is None

    def load_weights(self) -> None:
        """From the checkpoint, if there is one."""
        if self.start.checkpoint is not None:
            state = own_names(self.start.checkpoint)
            self.plan.strategy.load_state_dict(self.net, state)

    def restore(self) -> None:
        """What is this rank's own, from the checkpoint that training goes on from; the engine restores the rest."""
        content = self.start.content
        if content is None:
            return
        sums = self.checkpoints.restore(content, self.net)
        self.counts.resume(self.recorder.carried["window"])
        self.measured.epoch = RunningSums(self.plan.objective, sums["epoch"])
        self.curve.resume(RunningSums(self.plan.objective, sums["curve"]))
        self.measured.results = dict(content.results)
        self.measured.trained = -content.samples  # of the epoch under way: an earlier run trained on them

    def extra_state(self, at: Progress) -> Mapping[str, Any]:
        """What a checkpoint holds beside the engine's own state. To be called by every rank."""
        return self.checkpoints.extra_state(at, self.measured.results, self.sums, self.net)

    @property
    def sums(self) -> Mapping[str, Tensor]:
        """What this rank has summed since sums last met those of the others."""
        return {"epoch": self.measured.epoch.sums, "curve": self.curve.sums.sums}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around training and testing: torch's flags are the plan's, and if it fails the loggers are told."""
        with self.loggers, torch_flags(self.plan.trainer):
            yield

    def listening(self) -> AbstractContextManager[None]:
        """Around training: here a request to stop is heeded."""
        self.time_limit.begin()
        return self.context.stop.listening(self._batches(self.start.at))

    def should_stop(self, at: Progress) -> bool:
        """Whether someone asked for the end of training. To be asked after each batch, by every rank."""
        return self.context.stop.should_stop(self._batches(at))

    def ends_after(self, at: Progress) -> bool:
        """Whether a bound of steps or of time ends training. To be asked after each batch, by every rank."""
        return self.time_limit.ends(at.steps) or self.plan.trained(0, at.steps)

    def _batches(self, at: Progress) -> int:
        return self.plan.batches_before(at.epochs, at.batch)

    def update_best(self, epoch: int) -> None:
        """After an epoch, from 1: whether it is the best so far, unless what says so was not measured."""
        if self.plan.validates_after(epoch) or not self.plan.monitor[0].startswith("val/"):
            self.checkpoints.update_best(self.measured.results)

    def log_epoch(self, validation: Mapping[str, float], epoch: int, step: int) -> None:
        """An epoch's metrics, and what it took, to the loggers. `train/loss` they have as a curve over steps."""
        trained = {name: own for name, own in self.measured.results.items() if name.startswith("train/")}
        trained.pop("train/loss", None)
        self.epoch_seconds.append(self.phases.total)
        work = work_of(self.plan, self.device, self.phases.of_batch())
        self.loggers.log_metrics({**trained, **validation, **work, "epoch": epoch}, step)
        self.monitor.end_epoch(bool(validation), self.measured.confusion, epoch + 1, step)

    def begin_evaluation(self, stage: str) -> EvaluationSums:
        """The sums of an evaluation, with what is kept of a validation to be shown."""
        shown = self.monitor.begin_validation() if stage == "val" else None
        return EvaluationSums(self.plan.objective, self.device, shown)

    def end_validation(self, at: Progress, validated: Tensor) -> dict[str, float]:
        """Within an epoch: its metrics, from this rank's totals, and whether it is the best so far. By every rank."""
        found = self.measured.end_validation(validated)
        self.loggers.log_metrics({**found, "epoch": at.epochs}, at.steps)
        self.recorder.flush(at.epochs + 1, at.steps)
        self.recorder.validation(at.epochs + 1, found, at.steps, at.batch)
        if self.plan.monitor[0].startswith("val/"):
            self.checkpoints.update_best(self.measured.results)
        return found

    def end_cut_epoch(self, at: Progress) -> None:
        """The metrics of an epoch's part, where a bound ends the run within. To be called by every rank."""
        if at.batch:
            self.measured.end_epoch(None)

    def end_test(self, tested: Tensor) -> dict[str, float]:
        """The metrics of the test split, from this rank's totals; rank 0 leaves the confusion counts."""
        metrics, counts = self.measured.end_test(tested)
        if self.context.rank == 0 and self.plan.objective.classes:
            save_confusion(Path(self.plan.run_dir), counts.tolist())
        return metrics

    def finish(self, at: Progress, seconds: float) -> Metrics:
        """What the run returns, on every rank, and metrics.json holds.

        Args:
            at: what is done, in earlier runs too where this one was resumed.
            seconds: of training, validation left out.
        """
        plan, trained = self.plan, self.measured.trained
        return {
            **self.heading,
            "epochs": at.begun,
            "steps": at.steps,
            "train_seconds": seconds,
            "samples_per_second": trained / seconds if trained else 0.0,
            **seconds_range(self.epoch_seconds),
            **self.measured.results,
            **(self.checkpoints.best_metrics if plan.train else {}),
            **(fitted_line(self.net, plan.data.predict) if isinstance(plan.data, schemas.Line) else {}),
            "digest": digest(plan.strategy.state_dict(self.net)),
        }
