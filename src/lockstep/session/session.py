"""What both engines do around a module: before training, around each batch, at the ends of epochs, afterwards.

An engine runs the loop and calls these methods at the same moments. Each has objects of one task: `data` (this rank's
batches), `step` (the weight of its loss, sums and curves), `log` (values of `self.log`), `progress` (where training
stands), `recorder`, `checkpoints`, `loggers`.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.checkpoint.content import named_as_in
from lockstep.checkpoint.files import BEST, read_checkpoint, resume_after_restart
from lockstep.checkpoint.reading import read_start, require_net
from lockstep.checkpoint.saving import CheckpointManager, replace_weights
from lockstep.config_error import require
from lockstep.launch.topology import RankContext
from lockstep.loaders.rank_data import RankData
from lockstep.memory import set_malloc_trim
from lockstep.monitor import log_histograms, open_loggers, show_layers, work_of
from lockstep.optimizers import learning_rate
from lockstep.parallel.messages import all_gather_json
from lockstep.parallel.tensor_layout import full_state_dict, load_full_state_dict
from lockstep.plan import Plan
from lockstep.random_state import random_state, restore_random_state, seed_by, seed_rank
from lockstep.record.fingerprint import digest
from lockstep.record.recorder import Recorder
from lockstep.session.callbacks import require_planned_steps
from lockstep.session.lightning_module import prepare_module
from lockstep.session.module_state import ModuleState
from lockstep.session.profiler import Phases, Profiler
from lockstep.session.progress import RunProgress
from lockstep.session.results import Results
from lockstep.session.torch_options import compile_nets, torch_flags
from lockstep.step_plan import STAGES
from lockstep.steps.exact_log import ExactLog, attach_log
from lockstep.steps.logged_values import preserve_metrics, widen_metrics


class Session:
    """One run on one rank. A run that trains has `recorder` and `checkpoints` after `begin`.

    random: during an evaluation, the state of the generators of training.
    """

    random: Any = None
    recorder: Recorder
    checkpoints: CheckpointManager
    optimizer_steps: list[tuple[float, Sequence[Tensor]]]

    def __init__(self, plan: Plan, context: RankContext) -> None:
        """Create the module, its weights first, the same on every rank."""
        set_malloc_trim(False)
        if context.restarts:
            plan = resume_after_restart(plan)
        self.plan, self.context, self.manual = plan, context, plan.model.manual
        self.start = read_start(plan)
        self.device, *_ = plan.strategy.devices(plan)
        self.module, source, create_step = prepare_module(plan)
        self.data = RankData(plan, context, source, self.module, self.start.position)
        self.log = ExactLog(self.module, context.rank)
        self.loggers = open_loggers(plan, context.rank, self.start.position.steps)
        self.step = create_step(self.log, self.data)
        attach_log(self.module, self.log if plan.saves else None)
        self.progress = RunProgress(plan, context, self.start, self.device, self.data.runs("val"))
        self.phases = Phases(self.device, waits=plan.profiler == "simple")
        self.state = ModuleState(plan, context, self.start, self.module, self.log)
        self.results = Results(self.module, self.log, self.loggers, self.progress, self.phases)
        self.profiler = Profiler(plan, context.rank, self.device)

    # around training

    def begin(self, callbacks: Sequence[Any]) -> None:
        """Begin the record and the checkpoints. The module is configured, its optimizers are not restored yet."""
        plan = self.plan
        # Lightning sets this on import; with it every step of Adam would load the driver to ask whether there is a GPU
        os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
        require_planned_steps(plan, callbacks)
        reason, hint = "it sets automatic_optimization after it was created", "one that sets it in its __init__"
        fits = self.manual != getattr(self.module, "automatic_optimization", not self.manual)
        require(fits, "model", plan.model.name, reason, hint)
        seed_rank(plan.seed, self.context.rank)  # after Lightning, which seeds as seed_everything did
        if self.start.checkpoint is not None:
            require_net(plan, self.module, self.start.checkpoint)
        if plan.train:
            if self.data.runs("val") and not self.start.is_finished:
                self.data.loaders("val")  # raises for wrong ones before the first step
            at, content = self.start.position, self.start.content
            rank, offset = self.context.rank, content["record"] if content else None
            self.recorder = Recorder(plan, rank, self.module, at.epochs, at.batch, offset)
            self.checkpoints = CheckpointManager(plan, rank, self.recorder, self.step.virtual)
            self.results.checkpoints = self.checkpoints
            if plan.model_summary or plan.trainer.enable_model_summary:
                show_layers(plan, rank, self.module, self.data.example(), self.device)
            compile_nets(plan, self.context.rank, self.module)

    def load_weights(self, checkpoint: Mapping[str, Any] | None) -> None:
        if checkpoint is not None:
            strict = getattr(self.module, "strict_loading", True)
            load_full_state_dict(self.module, named_as_in(self.module, checkpoint["state_dict"]), strict)

    def choose_net_to_test(self) -> None:
        if self.plan.test == "best":
            path = self.checkpoints.last.with_name(BEST)
            all_gather_json(None)  # rank 0 has saved it
            require(path.is_file(), "test", "best", "this run has saved no best.ckpt", "test=true")
            self.load_weights(read_checkpoint(path))

    def restore(self) -> None:
        """Restore the state of this rank from the checkpoint that training resumes; the engine restores the rest."""
        if (content := self.start.content) is not None:
            sums = self.checkpoints.restore(content)
            self.step.weights.window = sums["loss_weights"].item()
            self.results.curve.totals = tuple(sums["curve"].tolist())
            self.state.restore()
            self.results.values = dict(content["results"])

    def watch(self, trainer: Any) -> None:
        """Have a ReduceLROnPlateau that steps by a value of each batch get its mean over ranks, which would diverge."""
        plateaus = [schedule for schedule in trainer.lr_scheduler_configs if schedule.reduce_on_plateau]
        self.log.always_synced = {str(schedule.monitor) for schedule in plateaus}
        every = self.plan.checkpoint.every_n_steps
        saves_within = every is not None or self.plan.trainer.val_check_interval != 1.0
        fits = not saves_within or all(schedule.interval == "epoch" for schedule in plateaus)
        reason = "ReduceLROnPlateau steps after each batch, and a checkpoint before that would lack its last step"
        hint = "checkpoint.every_n_steps=null trainer.val_check_interval=1.0"
        require(fits, "checkpoint.every_n_steps", every, reason, hint)

    def extra_state(self) -> Mapping[str, Any]:
        """Return the content of a checkpoint beside the state of the engine. To be called by every rank."""
        progress, values, module = self.progress, self.results.values, self.state.saved()
        weights = torch.tensor(self.step.weights.window, dtype=torch.float64)
        sums = {"loss_weights": weights, "curve": self.results.curve.sums}  # of this rank, not reduced yet
        return self.checkpoints.extra_state(progress.position, values, sums, module, progress.ended, self.random)

    def end_finished(self, trainer: Any) -> None:
        """Restore a run that had finished training, maybe within an epoch, before it is tested."""
        self.restore()
        if self.progress.position.batch:
            self.progress.interrupted_epoch = True
            self.state.restore_metrics()
            self.before_epoch_end(trainer, "train")
            self.results.end_stage(trainer, "train")
        self.end_fit()

    def end_fit(self) -> None:
        """End the record, after the last hook of fit; last.ckpt gets the weights if hooks have replaced them."""
        self.profiler.end()
        self.results.display.close()
        self.recorder.end()
        weights = full_state_dict(self.module)
        self.results.digest = digest(weights)
        if self.plan.saves and self.context.rank == 0:
            replace_weights(self.checkpoints.last, weights)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Set torch's flags as the plan says; close the loggers and the bar if the run fails."""
        with self.loggers, torch_flags(self.plan), closing(self.results.display), self.profiler:
            yield

    # a batch of training

    def begin_epoch(self) -> None:
        self.phases.begin_epoch()
        self.results.display.begin_epoch(self.progress.position)
        widen_metrics(self.plan, self.module)
        if self.progress.position.batch == 0:
            self.log.begin_epoch("train")
        self.log.enter("train")
        self.results.curve.begin_epoch(is_resumed=self.progress.position.batch > 0)

    def begin_batch(self) -> None:
        """Begin a training batch that the loader has yielded and that is on its device."""
        self.phases.mark("data")
        self.optimizer_steps = []
        progress = self.progress
        self.step.begin(self.data.next_share("train"), progress.position, progress.batches_per_step)
        self.log.begin_batch("train", self.step.samples)

    def before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Measure the optimizer's gradients, which are complete, averaged over ranks, and not clipped yet."""
        step = learning_rate([optimizer]), self.step.gradient_norms(optimizer)
        earlier = self.optimizer_steps if self.manual else []  # an optimizer may call its closure several times
        self.optimizer_steps = [*earlier, step]

    def end_batch(self, trainer: Any, is_step_boundary: bool, last: bool) -> None:
        """Record and show a batch, the `last` of its epoch or not, after the steps of optimizers and schedules."""
        log, step, position = self.log, self.step, self.progress.position
        self.results.update_step_metrics(trainer)  # with what the hooks of this batch have logged
        counted = step.record_batch(self.recorder)
        if self.plan.logger:
            self.results.curve.add(*counted)
        position.batch += 1
        rate = self.optimizer_steps[0][0] if self.optimizer_steps else learning_rate(trainer.optimizers)
        if is_step_boundary := is_step_boundary or self.manual:
            norms = [norm for _, norms in self.optimizer_steps for norm in norms]
            self.recorder.step(rate, norms, log.record_values() if log.step_values else None)
            position.steps += 1
            self.recorder.stepped(trainer.optimizers, last)
        if is_step_boundary and self.plan.logger and position.steps % self.plan.log_every_n_steps == 0:
            values = log.step("logger")
            curve = {"lr": rate, **self.results.curve.point()}  # of a name that the module logs itself, its value stays
            self.loggers.log_metrics({name: curve[name] for name in curve if name not in values}, position.steps)
            self.results.to_loggers(values, position.epochs)
        log.enter("train")
        self.results.display.end_batch(trainer.progress_bar_metrics)
        self.progress.time_limit.ends(position.steps)
        self.phases.step(step.share.samples)
        self.profiler.end_batch()
        if last:
            self.results.work = work_of(self.plan, self.device, self.phases.end_epoch())
            log_histograms(self.plan, self.loggers, self.module, position.epochs + 1, position.steps)

    # evaluations

    def begin_evaluation(self, stage: str) -> None:
        """Begin an evaluation, before its first hook."""
        if stage == "test":
            self.phases.begin_epoch()
        else:
            self.phases.synchronize()
        self.random = random_state(self.plan.strategy.devices(self.plan))
        widen_metrics(self.plan, self.module)
        self.log.begin_epoch(stage)
        self.results.validated = self.results.validated or stage == "val"
        if self.step.virtual is not None:
            self.step.virtual.buffers = {}  # as under DDP, all ranks evaluate with rank 0's
        self._seed_evaluation(stage)

    @contextmanager
    def sanity_check(self) -> Iterator[None]:
        """Discard everything that a validation before training measures."""
        self.progress.checking = True
        with preserve_metrics(self.module):
            yield
        self.progress.checking = self.results.validated = False

    def begin_evaluation_batch(self, stage: str, batch_idx: int, loader: int) -> None:
        self.step.share, self.step.loader = self.data.next_share(stage, loader), loader
        self.log.begin_batch(stage, self.step.samples, loader if len(self.data.by_stage[stage]) > 1 else None)
        self._seed_evaluation(stage, batch_idx, loader)

    def _seed_evaluation(self, stage: str, batch_idx: int = -1, loader: int = -1) -> None:
        """Seed the generators for a batch on this rank, so that no evaluation depends on another one or on training.

        Without a batch: for the hooks before the first one and after the last one, alike on every rank.
        """
        epoch = self.progress.position.epochs if stage == "val" else 0
        key = (self.plan.seed, epoch, STAGES.index(stage), loader, batch_idx)
        seed_by(*key, 0 if batch_idx < 0 else self.context.rank)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(torch.initial_seed())
        if self.step.virtual is not None:
            self.step.virtual.evaluation = key

    def before_epoch_end(self, trainer: Any, stage: str) -> None:
        """Reduce the values of a stage, so that its last hooks can read them. To be called by every rank."""
        if self.log.in_batch:  # Lightning's loops take it for the end of the data
            raise RuntimeError(f"StopIteration, raised in a {stage} batch by a step or a hook, would end the epoch")
        if stage == "train":  # a stop may have ended it before its last batch
            self.phases.synchronize()
        else:
            self._seed_evaluation(stage)
        if not self.progress.checking:
            self.results.update_metrics(trainer, self.log.epoch(stage))

    def end_evaluation(self, stage: str) -> None:
        """End an evaluation, after its last hook; its time does not count as training."""
        restore_random_state(self.random, self.plan.strategy.devices(self.plan))
        self.random = None
        self.log.enter("train")
        if self.step.virtual is not None:
            self.step.virtual.evaluation = ()
        self.phases.begin(stage)
