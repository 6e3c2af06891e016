"""What both engines do for a LightningModule before, in and after their loops, once: what happens when.

What of the module is wrapped, `wrapped` says.
"""

import copy
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.checkpoint.content import Progress
from lockstep.checkpoint.reading import require_net
from lockstep.checkpoint.saving import CheckpointManager
from lockstep.config_error import config_error
from lockstep.launch.topology import RankContext
from lockstep.loggers import Loggers
from lockstep.memory.allocation import disable_malloc_trim
from lockstep.monitor import work_of
from lockstep.monitor.epoch import EpochMonitor
from lockstep.monitor.net import shows_net
from lockstep.own_module.loaders import Taken
from lockstep.own_module.logged import metric_modules
from lockstep.own_module.loss_weight import loss_sum
from lockstep.own_module.module_state import ModuleState
from lockstep.own_module.net_example import show_module
from lockstep.own_module.plateau import require_logged
from lockstep.own_module.step_phases import mark_steps
from lockstep.own_module.wrapped import WrappedModule
from lockstep.parallel.fixed_bucket_ddp import average_late
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.private_api.lightning import summary
from lockstep.private_api.torchmetrics import metric_state, restore_metric
from lockstep.record.digest import digest
from lockstep.record.recorder import Recorder
from lockstep.run_files import Metrics
from lockstep.sums.phases import seconds_range
from lockstep.time_limit import TimeLimit
from lockstep.torch_flags import torch_flags
from lockstep.world_dependence import heading

TRAIN_LOSS = "train/loss"
BEST_BY = ("val_loss", "val/loss", "valid_loss", "validation_loss", TRAIN_LOSS)
"""What best.ckpt is best by where nobody says: the first of these that a module logs."""


class ModuleSession(WrappedModule):
    """One run in one rank's place. `recorder` and `checkpoints` are there once `begin` was called, to train."""

    recorder: Recorder
    checkpoints: CheckpointManager

    def __init__(self, plan: Plan, context: RankContext) -> None:
        """The module's weights are drawn before anything else.

        Raises:
            ConfigError: the plan's module, data or checkpoint is not what the plan says.
        """
        disable_malloc_trim()
        super().__init__(plan, context)
        self.time_limit = TimeLimit(self.plan.trainer.seconds, context.rank, self.device)
        self.at = replace(self.start.at)
        self.results: dict[str, float] = {}
        self.digest = ""
        self.epoch_values: dict[str, float] = {}
        self.trained = 0
        self.epoch_began, self.epoch_work = (0.0, 0), dict[str, float]()
        self.epoch_seconds: list[float] = []
        self.evaluation_began, self.evaluating = 0.0, ExitStack()
        self.ended = self.cut = self.validated = self.checking = False
        self.averaged: frozenset[int] | None = None
        self.stepping: list[tuple[Optimizer, float, list[Tensor]]] = []
        self.unseen = shows_net(self.plan)
        self.state = ModuleState(self.plan, context, self.start, self.module, self.logged)
        self.optimizers: Sequence[Optimizer] = ()
        self.monitor = self._create_monitor()

    def _create_monitor(self) -> EpochMonitor:
        return EpochMonitor(self.plan, self.loggers, self.module, ())

    @property
    def heading(self) -> dict[str, str | int | float]:
        return heading(self.plan, self.module)

    @property
    def finished(self) -> bool:
        """Whether training was done when the run was interrupted."""
        if self.start.content is None or self.start.checkpoint is None:
            return False
        done = self.plan.trained(self.start.at.epochs, self.start.checkpoint["global_step"])
        return self.plan.train and (done or (self.plan.resume and self.start.content.ended))

    @property
    def checks_first(self) -> bool:
        """Whether some batches are validated before training, of which nothing is kept. As in Lightning, not where a
        run begins at a checkpoint.
        """
        wanted = self.plan.trainer.num_sanity_val_steps != 0
        return wanted and self.runs("val") and self.start.checkpoint is None

    @property
    def validates(self) -> bool:
        """Whether there is any validation."""
        return self.runs("val") and self.plan.comes_to_validation

    # around training

    def begin(self) -> None:
        """The module is configured, its optimizers are not restored yet: the record and the checkpoints begin.

        Raises:
            ConfigError: the checkpoint is of another net.
        """
        if self.start.checkpoint is not None:
            require_net(self.plan, self.module, self.start.checkpoint)
        if self.plan.train:
            if self.runs("val") and not self.finished:
                self._loaders("val")  # what is wrong with them is told before the first step
            self.recorder = self.start.recorder(self.plan, self.context.rank, self.module)
            self.checkpoints = CheckpointManager(self.plan, self.context.rank, self.recorder)
        if self.plan.trainer.enable_model_summary and self.context.rank == 0:
            print(summary(self.module), flush=True)

    def load_weights(self) -> None:
        """From the checkpoint, if there is one."""
        if self.start.checkpoint is not None:
            state = self.start.checkpoint["state_dict"]
            self.plan.strategy.load_state_dict(self.module, state, self.module.strict_loading)

    def restore(self) -> None:
        """What is this rank's own, from the checkpoint that training goes on from; the engine restores the rest."""
        if (content := self.start.content) is not None:
            self.checkpoints.restore(content, self.module)
            self.state.restore()
            self.results = dict(content.results)

    def watch(self, optimizers: Sequence[Optimizer], schedules: Iterable[Any], wrapped: object) -> None:
        """Seconds of an optimizer's step are its own.

        A schedule that steps by a value of each batch steps by that of all ranks: by their own, they would part.

        Args:
            wrapped: what averages gradients, a FixedBucketDDP or anything else.

        Raises:
            ConfigError: a schedule steps behind a checkpoint that would lack its step.
        """
        self.optimizers = optimizers
        mark_steps(optimizers, self.phases)
        self.averaged = getattr(wrapped, "averaged", None)
        plateaus = [own for own in schedules if own.reduce_on_plateau]
        self.logged.always_synced = {str(own.monitor) for own in plateaus}
        within = {
            "checkpoint.every_n_steps": (self.plan.checkpoint.every_n_steps, None),
            "trainer.val_check_interval": (self.plan.trainer.val_check_interval, 1.0),
        }
        for key, (value, default) in within.items():
            if value != default and any(own.interval == "step" for own in plateaus):
                why = "ReduceLROnPlateau steps behind each batch, and a checkpoint before that would lack its last step"
                raise config_error(key, value, why, f"{key}={'null' if default is None else default}")

    def restore_accumulation(self, trainer: Any) -> None:
        """Behind what callbacks do as training starts: where it resumes within an epoch none of them sets it."""
        trainer.accumulate_grad_batches = self.batches_per_step

    def extra_state(self) -> Mapping[str, Any]:
        """What a checkpoint holds beside the engine's own state. To be called by every rank."""
        none = torch.zeros(len(self.plan.objective.sums), dtype=torch.float64)
        module = self.state.saved(self.optimizers, within=self.at.batch > 0)
        sums = {"epoch": none, "curve": none}
        return self.checkpoints.extra_state(self.at, self.results, sums, self.module, module, self.ended, prefix="")

    @contextmanager
    def running(self) -> Iterator[Loggers]:
        """Around training and testing: torch's flags are the plan's, and if it fails the loggers are told."""
        with self.loggers as curves, torch_flags(self.plan.trainer):
            yield curves

    def listening(self) -> AbstractContextManager[None]:
        """Around training: here a request to stop is heeded."""
        self.time_limit.begin()
        return self.context.stop.listening(self._batches(self.start.at))

    def should_stop(self) -> bool:
        """Whether someone asked for the end of training. To be asked after each batch, by every rank."""
        return self.context.stop.should_stop(self._batches(self.at))

    def _batches(self, at: Progress) -> int:
        return at.epochs * (self.plan.epoch_batches or 2**31) + at.batch

    # a batch of training

    def _metrics_in_float64(self) -> None:
        """As the plan's numbers, if they are: a metric keeps its own through `to`, and forgets `set_dtype` in it."""
        if dtype_of(self.plan) == torch.float64:
            for _, metric in metric_modules(self.module):
                metric.set_dtype(torch.float64)

    def begin_epoch(self) -> None:
        self.epoch_began = time.perf_counter(), self.trained
        self.phases.begin()
        self._metrics_in_float64()
        if self.at.batch == 0:
            self.logged.begin_epoch("train")
        self.logged.enter("train")

    def begin_batch(self, batch: Any) -> None:
        """The next batch that the training loader has yielded, on its device."""
        self.phases.mark("data")
        if self.unseen:
            self.unseen = False
            self._show_net(batch)
        self.stepping = []
        self._take(self.rank_loaders["train"][0].taken.popleft())

    def _show_net(self, batch: Any) -> None:
        show_module(self.plan, self.loggers, self.module, batch, self.device, self.transfer)

    def _take(self, taken: Taken) -> None:
        self.step.begin(taken, self.batches_per_step)

    @property
    def batches_per_step(self) -> int:
        """In the epoch under way."""
        return self.plan.batches_per_step(self.at.epochs)

    def before_optimizer_step(self, optimizer: Optimizer) -> None:
        """The optimizer's gradients are complete, averaged over ranks, and not clipped yet."""
        parameters = [own for group in optimizer.param_groups for own in group["params"]]
        if not parameters:  # Lightning's stand-in, where configure_optimizers returns none
            return
        self.step.require_averaged(parameters, resumed=self.start.content is not None)
        if self.averaged is not None:
            average_late(parameters, self.averaged)
        found = optimizer, rate_of([optimizer]), [*self.recorder.norms(parameters)]
        if self.manual:
            self.stepping.append(found)
        else:
            self.stepping = [found]  # an optimizer may ask for its gradient several times

    def end_batch(self, trainer: Any, due: bool, last: bool) -> None:
        """A batch is done, and its optimizers and schedules have stepped: what was logged of it is shown and recorded.

        Args:
            trainer: whose metrics callbacks and schedules look at; Lightning's, or the raw engine's.
            due: whether it is the last of an optimizer step.
            last: whether it is the last of the epoch.
        """
        self.logged.sync_steps()
        trainer.callback_metrics.update(as_tensors(self.logged.monitored()))
        trainer.progress_bar_metrics.update(self.logged.bar())
        self._record_batch()
        self.at.batch += 1
        if due := due or self.manual:
            self._require_monitored(trainer, "step", self.at.batch)
            self._record_step(trainer.optimizers, last)
        self.log_points(due)
        self.logged.end_batch()
        self.time_limit.ends(self.at.steps)
        self.phases.step()
        if last:
            self.monitor.end_steps(self.at.epochs + 1)
            self._end_work()

    def _record_batch(self) -> None:
        taken, count, found = self.step.taken, self.step.samples, self.step.loss
        loss = 0.0 if found is None else (found if found.is_cuda else found.item())
        ids = taken.ids if count else taken.ids[:0]
        if found is not None:
            self._log_loss(loss)
        self.recorder.batch((loss_sum(self.plan, loss, count), count), ids)
        self.trained += taken.samples

    def _record_step(self, optimizers: list[Optimizer], last: bool) -> None:
        rate = self.stepping[0][1] if self.stepping else rate_of(optimizers)
        norms = [norm for _, _, own in self.stepping for norm in own]
        logged = {key: self.logged.for_record(own) for key, own in (("logged", False), ("metrics", True))}
        self.recorder.steps.step(rate, norms, logged)
        self.at.steps += 1
        self.recorder.stepped(*optimizers, last=last)

    def _end_work(self) -> None:
        """What the epoch's training has taken, before its validation."""
        since, trained = self.epoch_began
        speed = (self.trained - trained) / (time.perf_counter() - since)
        self.epoch_seconds.append(self.phases.total)
        work = work_of(self.plan, self.device, self.phases.of_batch())
        self.epoch_work = {"samples_per_second": speed, **work}

    def log_points(self, due: bool) -> None:
        """Every N steps, of a step's batches after the last."""
        if due and self.at.steps % self.plan.log_every_n_steps == 0:
            self._to_loggers(self.logged.step(), self.at.epochs)

    def ends(self, trainer: Any) -> bool:
        """Whether no further epoch begins."""
        done = self.plan.trained(self.at.epochs, trainer.global_step)
        return done or self.time_limit.passed or bool(trainer.should_stop)

    def cuts_epoch(self, trainer: Any) -> bool:
        """Whether a bound of steps or time ends training behind this batch, which is not the epoch's last.

        Its checkpoint lies within the epoch, so that training can go on from there; what has been logged of the part
        still becomes results.
        """
        done = self.time_limit.passed or self.plan.trained(self.at.epochs, trainer.global_step)
        self.cut = done and not trainer.should_stop
        return self.cut

    def _log_loss(self, loss: Any) -> None:
        """The loss of the epoch, unless the module logs something of this name itself."""
        theirs = self.logged.stages.get("train", {}).get(TRAIN_LOSS)
        if theirs is None or not theirs.logger:
            self.logged.log(TRAIN_LOSS, loss, logger=False, on_step=False, on_epoch=True)

    # evaluations and the ends of epochs

    def begin_evaluation(self, stage: str) -> None:
        """Before its first hook."""
        self.evaluation_began = time.perf_counter()
        self.evaluating.enter_context(self.plan.strategy.computing(self.module))
        self._metrics_in_float64()
        self._forget_buffers()
        self.logged.begin_epoch(stage)
        self.validated = self.validated or stage == "val"

    def begin_check(self) -> None:
        """Of a validation before training, whose values nobody keeps: Lightning's sanity check."""
        self.checking = True
        self.measured_before = {name: copy.deepcopy(metric_state(own)) for name, own in metric_modules(self.module)}

    def end_check(self) -> None:
        """All is as before; batches that a loader has made beyond are none."""
        for name, own in metric_modules(self.module):
            own.reset()
            restore_metric(own, self.measured_before[name])
        for loader in self.rank_loaders.get("val", []):
            loader.taken.clear()
        self.checking = self.validated = False

    def _forget_buffers(self) -> None:
        """Virtual ranks', as under DDP all ranks take over rank 0's to evaluate."""
        if self.step.virtual is not None:
            self.step.virtual.buffers = {}

    def begin_evaluation_batch(self, stage: str, loader: int) -> None:
        own = self.rank_loaders[stage]
        taken = own[loader].taken.popleft()
        self.logged.enter(stage)
        self.logged.begin_batch(taken.own, loader if len(own) > 1 else None)

    def end_stage(self, trainer: Any, stage: str) -> None:
        """Behind the module's own hook: the values of an epoch over all ranks become results, and go to the trainer's
        metrics and to the loggers. To be called by every rank.
        """
        found = self.logged.end_epoch(stage)
        if self.checking:
            return
        self.results |= found.values
        self.epoch_values |= {} if stage == "test" else found.values
        trainer.callback_metrics.update(as_tensors(found.monitored))
        trainer.logged_metrics.update(as_tensors(found.logger))
        trainer.progress_bar_metrics.update(found.prog_bar)
        work = self.epoch_work if stage == "train" else {}
        self._to_loggers({**found.logger, **work}, trainer.current_epoch)
        if stage == "train" and not self.cut:
            self._require_monitored(trainer, "epoch", trainer.current_epoch + 1)

    def _require_monitored(self, trainer: Any, interval: str, index: int) -> None:
        if not self.manual:
            schedules = trainer.lr_scheduler_configs
            require_logged(self.plan.model.name, schedules, interval, index, trainer.callback_metrics)

    def _to_loggers(self, values: Mapping[str, float], epoch: int) -> None:
        if values:
            self.loggers.log_metrics({**values, "epoch": epoch}, self.at.steps)

    def end_evaluation(self) -> None:
        """Behind its last hook. What it took is none of the epoch's training."""
        self.evaluating.close()
        since, trained = self.epoch_began
        self.epoch_began = since + time.perf_counter() - self.evaluation_began, trained
        self.phases.begin()

    def validates_here(self, trainer: Any, last: bool) -> bool:
        """Whether a validation follows the batch that is done; as Lightning does where somebody asks for the end."""
        epoch = self.at.epochs + 1
        due = self.plan.due_to_validate(epoch, None if last and self.plan.validation_batches is None else self.at.batch)
        stopped = trainer.should_stop and epoch % self.plan.trainer.check_val_every_n_epoch == 0
        return self.runs("val") and (due or stopped)

    def goes_on(self, trainer: Any, last: bool) -> bool:
        """Whether the epoch does not end behind this batch; one that max_steps or max_time cuts does not end."""
        return not last and (self.cut or not trainer.should_stop)

    def end_validation(self) -> None:
        """Of one within an epoch: the record, and whether it is the best so far."""
        self.recorder.flush(self.at.epochs + 1, self.at.steps)
        if self.epoch_values:
            self.recorder.validation(self.at.epochs + 1, self.epoch_values, self.at.steps, self.at.batch)
        if self._best_by in self.epoch_values:
            self._update_best_by(self.epoch_values)
        self.epoch_values = {}

    def end_epoch(self) -> None:
        """All of an epoch is done, its validation too: the record, and whether it is the best so far."""
        self.at = Progress(self.at.epochs + 1, 0, self.at.steps)
        self.recorder.end_epoch(self.at.epochs, self.at.steps)
        self._show_epoch()
        if self.epoch_values:
            self.recorder.validation(self.at.epochs, self.epoch_values)
        self._update_best(self.epoch_values)
        self.epoch_values, self.validated = {}, False

    def _show_epoch(self) -> None:
        """Histograms, and its first filters: what a module's outputs mean only it knows."""
        self.monitor.end_epoch(self.validated, None, self.at.epochs, self.at.steps)

    def _update_best(self, values: Mapping[str, float]) -> None:
        """After an epoch of these values: whether it is the best so far. One without validation may not say."""
        name = self.plan.monitor[0]
        if self.validates and not self.validated and not (name and name in values):
            return
        if name and name not in self.results:
            known = ", ".join(sorted(self.results)) or "none"
            why = f"{self.plan.model.name} logs no such value"
            raise config_error("checkpoint.monitor", name, why, f"one of {known}")
        if self._best_by:
            self._update_best_by(self.results)
        else:
            self.checkpoints.best_yet = True  # nothing says which is better: the newest

    @property
    def _best_by(self) -> str:
        """The value that says which checkpoint is best; empty where the module logs none that does."""
        return self.plan.monitor[0] or next((own for own in BEST_BY if own in self.results), "")

    def _update_best_by(self, values: Mapping[str, float]) -> None:
        self.checkpoints.monitor = self._best_by, self.plan.monitor[1]
        self.checkpoints.update_best(values)

    def end_cut_epoch(self, trainer: Any) -> None:
        """The results of an epoch's part, where a run that was cut is resumed to be tested."""
        if self.at.batch:
            self.cut = True
            self.state.restore_metrics()
            self.end_stage(trainer, "train")

    def end_training(self) -> None:
        """The record's end. A callback may put other weights into the module now, to be tested."""
        self.recorder.end()
        self.digest = digest(self.plan.strategy.state_dict(self.net))

    def finish(self, seconds: float) -> Metrics:
        """What the run returns, on every rank, and metrics.json holds.

        Args:
            seconds: of training, validation left out.
        """
        return {
            **self.results,
            **(self.checkpoints.best_metrics if self.plan.train else {}),
            **self.heading,
            "epochs": self.at.begun,
            "steps": self.at.steps,
            "train_seconds": seconds,
            "samples_per_second": self.trained / seconds if seconds and self.trained else 0.0,
            **seconds_range(self.epoch_seconds),
            "digest": self.digest or digest(self.plan.strategy.state_dict(self.module)),
        }

    @property
    def last(self) -> Path:
        """Where the newest checkpoint lies."""
        return self.checkpoints.last


def as_tensors(values: Mapping[str, float]) -> dict[str, Tensor]:
    """As callbacks expect them."""
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def rate_of(optimizers: list[Optimizer]) -> float:
    groups = optimizers[0].param_groups if optimizers else []
    return float(groups[0]["lr"]) if groups else 0.0
