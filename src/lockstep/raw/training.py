"""Training: `fit` alternates an epoch over this rank's share of each batch with an evaluation, and saves between."""

import time
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lockstep.checkpoint.content import Progress
from lockstep.checkpoint.saving import save
from lockstep.data.loader import create_loader
from lockstep.errors import TrainingInterrupted
from lockstep.optimizers import zero_grad
from lockstep.random_state import generators_kept
from lockstep.raw.evaluation import evaluate
from lockstep.raw.precision import Precision
from lockstep.raw.report import Report
from lockstep.raw.state import TrainingState
from lockstep.raw.timing import training_time
from lockstep.sampler import ShardSampler
from lockstep.schedulers import step_plateau
from lockstep.session import Session
from lockstep.strategies import Wrapped
from lockstep.sums.running import batch_stats


@dataclass
class Training:
    """What the loop works on. `at` counts what is done, `seconds` are those of training alone."""

    session: Session
    wrapped: Wrapped
    optimizer: Optimizer
    scheduler: LRScheduler | None
    precision: Precision
    report: Report
    at: Progress
    seconds: float = 0.0
    gradients: dict[tuple[float, float], Tensor] = field(default_factory=dict)

    @property
    def state(self) -> TrainingState:
        """What a checkpoint is made of, and restores."""
        strategy = self.session.plan.strategy
        return TrainingState(strategy, self.wrapped.net, self.optimizer, self.scheduler, self.precision)


def fit(run: Training) -> None:
    """Train for the plan's epochs. After each: validate, write the record, report, save.

    Raises:
        TrainingInterrupted: someone asked; a checkpoint is saved.
        NotFinite: a loss is NaN or infinite.
    """
    session, plan, report = run.session, run.session.plan, run.report
    if session.checks_first:
        with generators_kept():
            evaluate(session, run.wrapped, run.precision, "val", plan.trainer.sanity_batches)
    while not plan.trained(run.at.epochs, run.at.steps) and not session.time_limit.passed:
        began = time.perf_counter()
        with training_time(run):
            train_epoch(run)
            session.monitor.end_steps(run.at.epochs + 1)
        if run.at.batch < plan.epoch_batches:  # a bound of steps or time
            break
        run.at = Progress(run.at.epochs + 1, 0, run.at.steps)
        session.recorder.end_epoch(run.at.epochs, run.at.steps)
        validates = plan.validates_after(run.at.epochs)
        validated = evaluate(session, run.wrapped, run.precision, "val") if validates else None
        validation = session.measured.end_epoch(validated)
        session.log_epoch(validation, run.at.epochs - 1, run.at.steps)
        if validation:
            session.recorder.validation(run.at.epochs, validation)
        report.epoch_line(run.at.epochs, session.measured.results, time.perf_counter() - began)
        if run.scheduler is not None and session.plan.scheduler.interval == "plateau":
            step_plateau(session.plan, run.scheduler, session.measured.results)
        session.update_best(run.at.epochs)
        save_checkpoint(run)
        if session.should_stop(run.at):
            raise TrainingInterrupted(run.at.steps)
    session.end_cut_epoch(run.at)
    session.recorder.end()


def train_epoch(run: Training) -> None:
    """Every training batch once, from where the epoch stands, or until a bound of steps or time."""
    session, plan, context, objective = run.session, run.session.plan, run.session.context, run.session.plan.objective
    mark = session.phases.mark
    wrapped, split, parameters = run.wrapped, session.data.train, [*run.wrapped.net.parameters()]
    wrapped.net.train()
    sampler = ShardSampler(
        len(split),
        plan.batch_size,
        rank=context.rank,
        world_size=context.world_size,
        seed=plan.order_seed,
        drop_last=plan.drop_last,
        begin=(run.at.epochs, run.at.batch),
        batches=plan.epoch_batches,
    )
    sampler.set_epoch(run.at.epochs)
    loader = create_loader(session.data, split, sampler, session.device, run.precision.dtype)
    run.report.begin(run.at.epochs + 1, done=run.at.batch)
    session.phases.begin()
    for number, (inputs, targets, ids) in enumerate(loader, start=run.at.batch):
        mark("data")
        first = number % plan.accumulate_grad_batches == 0
        last = (number + 1) % plan.accumulate_grad_batches == 0 or number + 1 == len(sampler)
        session.masks.begin(run.at.epochs, number)
        with nullcontext() if last else wrapped.accumulating():
            with run.precision.autocast():
                outputs = wrapped.forward(inputs)
                loss_sum = objective.loss_sum(outputs, targets)
                stats = batch_stats(objective, loss_sum, outputs, targets)
            mark("forward")
            if first:
                zero_grad(parameters)
            backward(run, loss_sum, number)
        mark("backward")
        session.counts.add(stats)
        session.recorder.batch(stats, ids)
        session.measured.epoch.add(stats)
        run.at.batch += 1
        rate = optimizer_step(run, ends_epoch=number + 1 == len(sampler)) if last else None
        run.report.batch(stats, run.at.steps, rate)  # on every rank: its curves are sums over ranks
        over = session.ends_after(run.at)
        if number + 1 < len(sampler):  # the epoch's end saves by itself
            stop, validates = session.should_stop(run.at), plan.validates_after(run.at.epochs + 1, run.at.batch)
            if validates:
                session.phases.mark("rest")
                with training_time(run, sign=-1):
                    session.end_validation(run.at, evaluate(session, wrapped, run.precision, "val"))
                wrapped.net.train()
                session.phases.begin()
            if validates or stop or over or (last and session.checkpoints.due(run.at.steps)):
                save_checkpoint(run)
            if stop:
                raise TrainingInterrupted(run.at.steps)
            if over:
                return
        session.phases.step()


def backward(run: Training, loss_sum: Tensor, batch: int) -> None:
    """Add this batch's part to the gradient of the step's mean loss, Σ loss / Σ samples.

    As `precision.scale(loss_sum * factor / accumulate_grad_batches).backward()` would, bit for bit, and as Lightning
    does. A mean is the sum times a factor, so the chain rule may as well begin with the factor, which all full batches
    have in common: that saves 25 of the 130 µs that forward, loss and backward of a net of three small layers take.
    """
    factor = run.session.plan.loss_scale(batch)
    key = factor, run.precision.scaler.get_scale()  # which changes where float16 overflows
    if key not in run.gradients:
        one = run.precision.scale(torch.ones_like(loss_sum))
        run.gradients = {key: one / run.session.plan.accumulate_grad_batches * factor}
    loss_sum.backward(run.gradients[key])  # type: ignore[no-untyped-call]


def optimizer_step(run: Training, ends_epoch: bool) -> float:
    """The gradient over all ranks, recorded, clipped, and a step down it; then the schedule moves on. The rate used."""
    plan, recorder = run.session.plan, run.session.recorder
    rate: float = run.optimizer.param_groups[0]["lr"]
    run.wrapped.synchronise()
    run.session.phases.mark("communication")
    run.precision.unscale(run.optimizer)
    run.session.counts.weigh(recorder.parameters)
    recorder.step(rate)
    if plan.gradient_clip_val is not None:
        by_norm = plan.trainer.gradient_clip_algorithm == "norm"
        clip = nn.utils.clip_grad_norm_ if by_norm else nn.utils.clip_grad_value_
        clip(run.wrapped.net.parameters(), plan.gradient_clip_val)
    run.precision.step(run.optimizer)
    if run.scheduler is not None and plan.scheduler.interval in (("step", "epoch") if ends_epoch else ("step",)):
        run.scheduler.step()
    run.session.phases.mark("optimizer")
    recorder.stepped(run.optimizer)
    run.at.steps += 1
    return rate


def save_checkpoint(run: Training) -> None:
    """Where training stands, between two batches: what each rank knows meets at rank 0, which writes."""
    if not run.session.plan.saves:
        return
    checkpoint = {**run.state.state_dict(run.at), **run.session.extra_state(run.at)}
    if run.session.context.rank == 0:
        run.session.loggers.flush()
        save(checkpoint, run.session.checkpoints.last)
