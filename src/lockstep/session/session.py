"""What both engines do around a module, once: before training, around each batch, at the ends of epochs, afterwards.

An engine runs the loop and calls these methods at the same moments. What each of them knows lies in objects of its own:
`data` (this rank's batches), `step` (how the loss counts), `metrics` (what is measured), `log` (what `self.log` gets),
`progress` (where training stands), `recorder`, `checkpoints`, `loggers`.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from lockstep.checkpoint.content import net_weights
from lockstep.checkpoint.reading import read_start, require_net
from lockstep.checkpoint.saving import CheckpointManager
from lockstep.config_error import config_error
from lockstep.launch.topology import RankContext
from lockstep.loggers import Loggers
from lockstep.memory.allocation import disable_malloc_trim
from lockstep.monitor import open_loggers
from lockstep.monitor.net import shows_net
from lockstep.parallel.messages import broadcast_buffers
from lockstep.plan import Plan
from lockstep.private_api.torchmetrics import metric_state, restore_metric
from lockstep.random_state import seed_rank
from lockstep.record.recorder import Recorder
from lockstep.session.epoch_timing import EpochTiming
from lockstep.session.module_state import ModuleState
from lockstep.session.progress import RunProgress
from lockstep.session.results import Results, as_tensors
from lockstep.steps.exact_log import attach_log, metric_modules, widen_metrics
from lockstep.time_limit import TimeLimit
from lockstep.torch_flags import torch_flags


class Session:
    """One run in the place of one rank. `recorder` and `checkpoints` are there once `begin` was called, to train."""

    recorder: Recorder
    checkpoints: CheckpointManager

    def __init__(self, plan: Plan, context: RankContext, lightning: bool) -> None:
        """Create the module, its weights before anything else: they are the same on every rank.

        Args:
            lightning: whether a plain net is to become a LightningModule.

        Raises:
            ConfigError: the plan's module, data or checkpoint is not what the plan says.
        """
        disable_malloc_trim()
        if context.restarts:
            from lockstep.checkpoint.choice import resume_after_restart

            plan = resume_after_restart(plan)
        self.plan, self.context = plan, context
        self.start = read_start(plan)
        self.device, *_ = plan.strategy.devices(plan)
        if plan.model.lightning:
            from lockstep.session.user_module import create_user_module  # with Lightning

            trainee = create_user_module(plan, context, self.start.at)
        else:
            from lockstep.session.task import create_task

            trainee = create_task(plan, context, self.start.at, lightning)
        self.module, self.net, self.data = trainee.module, trainee.net, trainee.data
        self.log, self.step, self.metrics = trainee.log, trainee.step, trainee.metrics
        attach_log(self.module, self.log if plan.saves else None)
        self.step.wrap()
        seed_rank(plan.seed, context.rank)  # from here on each rank draws random numbers of its own
        self.loggers = open_loggers(plan, context.rank, self.start.at.steps)
        self.metrics.open(self.loggers)
        time_limit = TimeLimit(plan.trainer.seconds, context.rank, self.device)
        self.progress = RunProgress(plan, context, self.start, time_limit, self.data.runs("val"))
        self.timing = EpochTiming(plan, self.device)
        self.phases = self.timing.phases
        self.state = ModuleState(plan, context, self.start, self.module, self.log)
        self.results = Results(plan, trainee, self.progress, self.timing, self.loggers)
        self.evaluating = ExitStack()
        self.optimizer_steps: list[tuple[float, Sequence[Tensor]]] = []
        self.optimizers: Sequence[Optimizer] = ()
        self.is_unseen = shows_net(plan) and not self.metrics.show_example()

    # around training

    @property
    def manual(self) -> bool:
        """Whether the module steps its optimizers itself."""
        return not self.module.automatic_optimization

    def begin(self) -> None:
        """Begin the record and the checkpoints. The module is configured, its optimizers are not restored yet.

        Raises:
            ConfigError: the checkpoint is of another net.
        """
        plan = self.plan
        if self.start.checkpoint is not None:
            require_net(plan, self.net, self.start.checkpoint)
        if plan.train:
            if self.data.runs("val") and not self.progress.is_finished:
                self.data.loaders("val")  # what is wrong with them is told before the first step
            self.recorder = self.start.recorder(plan, self.context.rank, self.net)
            self.checkpoints = CheckpointManager(plan, self.context.rank, self.recorder, self.step.virtual)
            self.results.begin(self.recorder, self.checkpoints)
        if plan.trainer.enable_model_summary and self.context.rank == 0:
            from lockstep.private_api.lightning import summary  # with Lightning

            print(summary(self.module), flush=True)

    def load_weights(self) -> None:
        """Load the weights of the checkpoint, if there is one."""
        if self.start.checkpoint is not None:
            strict = getattr(self.module, "strict_loading", True)
            self.plan.strategy.tensors.load_state_dict(self.net, net_weights(self.start.checkpoint), strict)

    def restore(self) -> None:
        """Restore this rank's part of the checkpoint that training goes on from; the engine restores the rest."""
        if (content := self.start.content) is not None:
            sums = self.checkpoints.restore(content, self.net)
            self.metrics.restore(content, sums, self.recorder.steps.carried["window"])
            self.state.restore()
            self.results.values = dict(content.results)

    def watch(self, trainer: Any, marks_phases: bool) -> None:
        """Take over what the module has configured.

        A schedule that steps by a value of each batch steps by that of all ranks: by their own, they would part.

        Args:
            trainer: with its optimizers and schedules.
            marks_phases: whether the engine's loop itself marks the phases of a step.

        Raises:
            ConfigError: a schedule steps behind a checkpoint that would lack its step.
        """
        self.optimizers = trainer.optimizers
        if not marks_phases:
            from lockstep.steps.step_phases import mark_steps, wrap_phases

            wrap_phases(self.module, self.phases)
            mark_steps(self.optimizers, self.phases)
        schedules = trainer.lr_scheduler_configs
        plateaus = [schedule for schedule in schedules if schedule.reduce_on_plateau]
        self.log.always_synced = {str(schedule.monitor) for schedule in plateaus}
        within = {
            "checkpoint.every_n_steps": (self.plan.checkpoint.every_n_steps, None),
            "trainer.val_check_interval": (self.plan.trainer.val_check_interval, 1.0),
        }
        reason = "ReduceLROnPlateau steps behind each batch, and a checkpoint before that would lack its last step"
        for key, (value, default) in within.items():
            if value != default and any(schedule.interval == "step" for schedule in plateaus):
                raise config_error(key, value, reason, f"{key}={'null' if default is None else default}")

    def extra_state(self) -> Mapping[str, Any]:
        """Return what a checkpoint holds beside the state of the engine. To be called by every rank."""
        position = self.progress.position
        return self.checkpoints.extra_state(
            position,
            self.results.values,
            self.metrics.sums,
            self.net,
            self.state.saved(self.optimizers, within=position.batch > 0),
            self.progress.ended,
            prefix=self.metrics.prefix,
        )

    def end_interrupted_epoch(self, trainer: Any) -> None:
        """Make results of an epoch's part, where a run that was interrupted in it is resumed to be tested."""
        if self.progress.position.batch:
            self.progress.interrupted_epoch = True
            self.state.restore_metrics()
            self.results.end_stage(trainer, "train")

    @contextmanager
    def running(self) -> Iterator[Loggers]:
        """Set torch's flags as the plan says, and close the loggers if the run fails."""
        with self.loggers as loggers, torch_flags(self.plan.trainer):
            yield loggers

    # a batch of training

    def begin_epoch(self) -> None:
        self.timing.begin_epoch()
        widen_metrics(self.plan, self.module)
        if self.progress.position.batch == 0:
            self.log.begin_epoch("train")
        self.log.enter("train")
        self.metrics.begin_epoch(self.progress.position)

    def begin_batch(self, batch: Any) -> None:
        """Begin the next batch that the training loader has yielded, which is on its device."""
        self.phases.mark("data")
        if self.is_unseen:
            self.is_unseen = False
            self.metrics.show(batch)
        self.optimizer_steps = []
        progress = self.progress
        self.share = self.data.next_share("train")
        self.step.begin(self.share, progress.position, progress.batches_per_step)
        self.log.enter("train")
        self.log.begin_batch(self.step.samples)

    def before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Measure the optimizer's gradients, which are complete, averaged over ranks, and not clipped yet."""
        norms = self.step.gradient_norms(self.recorder, optimizer, self.start.content is not None)
        step = rate_of([optimizer]), norms
        if self.manual:
            self.optimizer_steps.append(step)
        else:
            self.optimizer_steps = [step]  # an optimizer may ask for its gradient several times

    def end_batch(self, trainer: Any, due: bool, last: bool) -> None:
        """Record and show a batch whose optimizers and schedules have stepped.

        Args:
            trainer: whose metrics callbacks and schedules look at; Lightning's, or the raw engine's.
            due: whether it is the last of an optimizer step.
            last: whether it is the last of the epoch.
        """
        if self.log.step_values:
            self.log.sync_steps()
            trainer.callback_metrics.update(as_tensors(self.log.monitored()))
            trainer.progress_bar_metrics.update(self.log.bar())
        self.metrics.record_batch(self.recorder)
        self.timing.samples += self.share.samples
        position = self.progress.position
        position.batch += 1
        rate = self.optimizer_steps[0][0] if self.optimizer_steps else rate_of(trainer.optimizers)
        if due := due or self.manual:
            self.results.require_monitored(trainer, "step", position.batch)
            self._record_step(trainer.optimizers, rate, last)
        self.metrics.log_points(position.steps if due else None, rate, position.epochs)
        if self.log.step_values and due and position.steps % self.plan.log_every_n_steps == 0:
            self.results.to_loggers(self.log.step(), position.epochs)
        self.log.end_batch()
        self.progress.time_limit.ends(position.steps)
        self.phases.step()
        if last:
            self.metrics.monitor.end_steps(position.epochs + 1)
            self.timing.end_steps()

    def _record_step(self, optimizers: list[Optimizer], rate: float, last: bool) -> None:
        norms = [norm for _, norms in self.optimizer_steps for norm in norms]
        logged = self.log.of_record() if self.log.step_values else None
        self.recorder.steps.step(rate, norms, logged)
        self.progress.position.steps += 1
        self.recorder.stepped(*optimizers, last=last)

    # evaluations and the ends of epochs

    def begin_evaluation(self, stage: str) -> None:
        """Begin an evaluation, before its first hook."""
        self.timing.pause()
        broadcast_buffers(self.module)
        self.evaluating.enter_context(self.plan.strategy.tensors.full_weights(self.module))
        widen_metrics(self.plan, self.module)
        self.metrics.begin_evaluation(stage)
        self.log.begin_epoch(stage)
        self.results.validated = self.results.validated or stage == "val"

    @contextmanager
    def sanity_check(self) -> Iterator[None]:
        """Discard everything that a validation before training measures."""
        self.progress.checking = True
        before = {name: copy.deepcopy(metric_state(metric)) for name, metric in metric_modules(self.module)}
        yield
        for name, metric in metric_modules(self.module):
            metric.reset()
            restore_metric(metric, before[name])
        for loader in self.data.of_stage.get("val", []):
            loader.shares.clear()  # batches that it has made beyond
        self.progress.checking = self.results.validated = False

    def begin_evaluation_batch(self, stage: str, loader: int) -> None:
        share = self.data.next_share(stage, loader)
        self.log.enter(stage)
        self.log.begin_batch(share.count, loader if len(self.data.of_stage[stage]) > 1 else None)

    def end_evaluation(self) -> None:
        """End an evaluation, behind its last hook. What it took is no part of the epoch's training."""
        self.evaluating.close()
        self.timing.resume()


def rate_of(optimizers: Sequence[Optimizer]) -> float:
    """Return the learning rate of the first group."""
    groups = optimizers[0].param_groups if optimizers else []
    return float(groups[0]["lr"]) if groups else 0.0
