"""The loops: an epoch of training, an evaluation, and `fit`, which alternates them."""

import time
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lockstep.checkpoint.content import Progress
from lockstep.data.loader import Loader
from lockstep.data.tensors import Batch, Split, TensorData
from lockstep.errors import TrainingInterrupted
from lockstep.launch.topology import RankContext
from lockstep.optimizers import zero_grad
from lockstep.parallel import GlobalMasks, all_reduce_sums, broadcast_buffers, synchronize
from lockstep.plan import Plan
from lockstep.raw.checkpoints import Checkpoints
from lockstep.raw.precision import Precision
from lockstep.raw.report import Report
from lockstep.recorder import Recorder
from lockstep.running_sums import BatchStats, EvaluationSums, RunningSums, Sums, batch_stats
from lockstep.sampler import ShardSampler, evaluation_batch
from lockstep.strategies import Wrapped
from lockstep.strategies.strategy import Forward
from lockstep.task import SAMPLES, Task


@dataclass
class Run:
    """All that the loops work on. `at` counts what is done; `tally` has this rank's sums of the epoch so far."""

    plan: Plan
    context: RankContext
    device: torch.device
    data: TensorData
    wrapped: Wrapped
    masks: GlobalMasks
    optimizer: Optimizer
    scheduler: LRScheduler | None
    precision: Precision
    report: Report
    task: Task
    at: Progress = field(default_factory=Progress)
    running_sums: RunningSums = field(init=False)
    parameters: list[nn.Parameter] = field(init=False)
    factors: dict[tuple[float, float], Tensor] = field(default_factory=dict)
    trained: int = 0
    seconds: float = 0.0
    results: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parameters = [*self.wrapped.net.parameters()]
        self.running_sums = RunningSums(self.task)

    @property
    def batches(self) -> int:
        """Global batches done in all."""
        return self.plan.batches_before(self.at.epochs, self.at.batch)


def fit(run: Run, recorder: Recorder, checkpoints: Checkpoints) -> None:
    """Train for the plan's epochs. After each: validate, write the record, report, save.

    Raises:
        Stopped: someone asked; a checkpoint is saved.
        NotFinite: a loss is no number.
    """
    while run.at.epochs < run.plan.max_epochs:
        began = time.perf_counter()
        train_epoch(run, recorder, checkpoints)
        synchronize(run.device)
        run.seconds += time.perf_counter() - began
        run.at = Progress(run.at.epochs + 1, 0, run.at.steps)
        recorder.end_epoch(run.at.epochs, run.at.steps)
        measure_epoch(run, recorder)
        run.report.epoch_line(run.at.epochs, run.results, time.perf_counter() - began)
        checkpoints.manager.update_best(run.results)
        checkpoints.save(run.at, run.results, own_sums(run))
        if run.context.stop.should_stop(run.batches):
            raise TrainingInterrupted(run.at.steps)
    recorder.end()


def measure_epoch(run: Run, recorder: Recorder) -> None:
    """Validate; the sums of training and of validation, of all ranks, meet in one message."""
    trained = run.running_sums.sums
    validated = evaluate(run, run.data.val) if len(run.data.val) else torch.zeros(0, dtype=torch.float64)
    totals = all_reduce_sums(torch.cat([trained, validated]), run.device)
    run.running_sums = RunningSums(run.task)
    run.trained += int(totals[SAMPLES])
    run.results |= run.task.metrics("train", totals[: len(trained)])
    if len(validated):
        validation = run.task.metrics("val", totals[len(trained) :])
        run.results |= validation
        run.report.log({**validation, "epoch": run.at.epochs - 1}, run.at.steps)
        recorder.validation(run.at.epochs, validation)


def train_epoch(run: Run, recorder: Recorder, checkpoints: Checkpoints) -> None:
    """Every training batch once, from where the epoch stands."""
    plan, wrapped = run.plan, run.wrapped
    wrapped.net.train()
    sampler = ShardSampler(
        len(run.data.train),
        plan.batch_size,
        rank=run.context.rank,
        world_size=run.context.world_size,
        seed=plan.seed,
        drop_last=plan.drop_last,
        begin=(run.at.epochs, run.at.batch),
    )
    sampler.set_epoch(run.at.epochs)
    run.report.begin(run.at.epochs + 1, len(sampler), done=run.at.batch)
    for number, batch in enumerate(loader(run, run.data.train, sampler), start=run.at.batch):
        first = number % plan.accumulate_grad_batches == 0
        last = (number + 1) % plan.accumulate_grad_batches == 0 or number + 1 == len(sampler)
        run.masks.begin(run.at.epochs, number)
        with nullcontext() if last else wrapped.accumulating():
            with run.precision.autocast():
                loss_sum, stats, _ = shared_step(run, wrapped.forward, batch)
            if first:
                zero_grad(run.parameters)
            backward(run, loss_sum, number)
        recorder.batch(stats, batch.ids)
        run.running_sums.add(stats)
        run.at.batch += 1
        rate = optimizer_step(run, recorder) if last else None
        run.report.batch(stats, run.at.steps, rate)  # on every rank: its curves are sums over ranks
        if number + 1 < len(sampler):  # the epoch's end saves by itself
            save_or_stop(run, checkpoints, stepped=last)


def save_or_stop(run: Run, checkpoints: Checkpoints, stepped: bool) -> None:
    """Between two batches: a checkpoint, if an optimizer step makes one due, and the end, if someone asked."""
    stop = run.context.stop.should_stop(run.batches)
    if stop or (stepped and checkpoints.manager.due(run.at.steps)):
        checkpoints.save(run.at, run.results, own_sums(run))
    if stop:
        raise TrainingInterrupted(run.at.steps)


def own_sums(run: Run) -> dict[str, Sums]:
    """This rank's sums that have not met those of the other ranks yet."""
    return {"epoch": run.running_sums.sums, "curve": run.report.running_sums.sums}


def backward(run: Run, loss_sum: Tensor, batch: int) -> None:
    """Add this batch's part to the gradient of the step's mean loss, Σ loss / Σ samples.

    The mean is the sum times a factor, and the chain rule begins with it: so backward does, in place of a loss that is
    multiplied first. Lightning divides by the number of batches as well; the bits are to be its.
    """
    factor = run.plan.loss_scale(batch)
    key = factor, run.precision.scaler.get_scale()  # which changes where float16 overflows
    if key not in run.factors:
        one = run.precision.scale(torch.ones_like(loss_sum))
        run.factors = {key: one / run.plan.accumulate_grad_batches * factor}
    loss_sum.backward(run.factors[key])  # type: ignore[no-untyped-call]


def optimizer_step(run: Run, recorder: Recorder) -> float:
    """The gradient over all ranks, recorded, clipped, and a step down it; then the schedule moves on. The rate used."""
    rate: float = run.optimizer.param_groups[0]["lr"]
    run.wrapped.synchronise()
    run.precision.unscale(run.optimizer)
    recorder.step(rate)
    if run.plan.gradient_clip_val is not None:
        nn.utils.clip_grad_norm_(run.wrapped.net.parameters(), run.plan.gradient_clip_val)
    run.precision.step(run.optimizer)
    if run.scheduler is not None:
        run.scheduler.step()
    recorder.stepped(run.optimizer)
    run.at.steps += 1
    return rate


@torch.inference_mode()
def evaluate(run: Run, split: Split) -> Tensor:
    """This rank's `EvaluationSums.totals` over a split, of which ranks share the samples."""
    run.wrapped.net.eval()
    broadcast_buffers(run.wrapped.net)
    size = evaluation_batch(run.plan.batch_size)
    sampler = ShardSampler(len(split), size, rank=run.context.rank, world_size=run.context.world_size)
    sums = EvaluationSums(run.task, run.device)
    for batch in loader(run, split, sampler):
        with run.precision.autocast():
            _, stats, outputs = shared_step(run, run.wrapped.evaluate, batch)
        sums.add(stats, outputs, batch.targets)
    return sums.totals


def shared_step(run: Run, forward: Forward, batch: Batch) -> tuple[Tensor, BatchStats, Tensor]:
    """The loss summed over the batch, to go backward from, what the batch adds to the sums, and the net's outputs."""
    outputs = forward(batch.inputs)
    loss_sum = run.task.loss_sum(outputs, batch.targets)
    return loss_sum, batch_stats(run.task, loss_sum, outputs, batch.targets), outputs


def loader(run: Run, split: Split, sampler: ShardSampler) -> Loader:
    return Loader(run.data, split, sampler, run.device, run.precision.dtype)
