"""The loops: an epoch of training, an evaluation, and `fit`, which alternates them."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lockstep import task
from lockstep.checkpoint.content import Position
from lockstep.data.tensors import Batch, Split, TensorData
from lockstep.ending import Stopped
from lockstep.launch.place import Place
from lockstep.parallel import Forward, Masks, same_buffers
from lockstep.plan import Plan
from lockstep.raw.checkpoints import Checkpoints
from lockstep.raw.precision import Precision
from lockstep.raw.report import Report
from lockstep.raw.wrap import Wrapped
from lockstep.recorder import Recorder
from lockstep.shards import ShardSampler, evaluation_batch
from lockstep.task import Sums


@dataclass
class Run:
    """All that the loops work on. `at` counts what is done; `sums` are those of the epoch so far, on this rank."""

    plan: Plan
    place: Place
    device: torch.device
    data: TensorData
    wrapped: Wrapped
    masks: Masks
    optimizer: Optimizer
    scheduler: LRScheduler | None
    precision: Precision
    report: Report
    task: task.Task
    at: Position = field(default_factory=Position)
    sums: Sums = field(init=False)
    trained: int = 0
    seconds: float = 0.0
    results: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sums = torch.zeros(3, dtype=torch.float64, device=self.device)

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
        totals = train_epoch(run, recorder, checkpoints)
        if run.device.type == "cuda":
            torch.cuda.synchronize()  # a GPU's work is queued: the clock waits for it
        run.seconds += time.perf_counter() - began
        run.at = Position(run.at.epochs + 1, 0, run.at.steps)
        run.sums = torch.zeros_like(run.sums)
        recorder.end_epoch(run.at.epochs, run.at.steps)
        run.trained += int(totals[2])
        run.results |= task.means("train", totals, run.plan.data.classes)
        if len(run.data.val):
            validation, _ = evaluate(run, "val", run.data.val)
            run.results |= validation
            run.report.log({**validation, "epoch": run.at.epochs - 1}, run.at.steps)
            recorder.validation(run.at.epochs, validation)
        run.report.epoch_line(run.at.epochs, run.results, time.perf_counter() - began)
        checkpoints.keeper.judge(run.results)
        checkpoints.save(run.at, run.results, own_sums(run))
        if run.place.stop.after(run.batches):
            raise Stopped(run.at.steps)
    recorder.end()


def train_epoch(run: Run, recorder: Recorder, checkpoints: Checkpoints) -> Sums:
    """Every training batch once, from where the epoch stands. Returns its sums over all ranks."""
    plan, wrapped = run.plan, run.wrapped
    wrapped.net.train()
    sampler = ShardSampler(
        len(run.data.train),
        plan.batch_size,
        rank=run.place.rank,
        world_size=run.place.world_size,
        seed=plan.seed,
        drop_last=plan.drop_last,
        begin=(run.at.epochs, run.at.batch),
    )
    sampler.set_epoch(run.at.epochs)
    run.report.begin(run.at.epochs + 1, len(sampler), done=run.at.batch)
    for number, batch in enumerate(batches(run, run.data.train, sampler), start=run.at.batch):
        first = number % plan.accumulate_grad_batches == 0
        last = (number + 1) % plan.accumulate_grad_batches == 0 or number + 1 == len(sampler)
        run.masks.begin(run.at.epochs, number)
        with nullcontext() if last else wrapped.accumulating():
            with run.precision.autocast():
                loss_sum, sums, _ = judge(run, wrapped.forward, batch)
                loss = loss_sum * plan.loss_scale(number)  # with what divides it later: Σ loss / Σ samples of the step
            if first:
                run.optimizer.zero_grad()
            backward(run, loss)
        recorder.batch(sums, batch.ids)
        run.sums += sums
        run.at.batch += 1
        rate = optimizer_step(run, recorder) if last else None
        run.report.batch(sums, run.at.steps, rate)  # on every rank: its curves are sums over ranks
        if number + 1 < len(sampler):  # the epoch's end saves by itself
            save_or_stop(run, checkpoints, stepped=last)
    return over_ranks(run.sums)


def save_or_stop(run: Run, checkpoints: Checkpoints, stepped: bool) -> None:
    """Between two batches: a checkpoint, if an optimizer step makes one due, and the end, if someone asked."""
    stop = run.place.stop.after(run.batches)
    if stop or (stepped and checkpoints.keeper.due(run.at.steps)):
        checkpoints.save(run.at, run.results, own_sums(run))
    if stop:
        raise Stopped(run.at.steps)


def own_sums(run: Run) -> dict[str, Sums]:
    """This rank's sums that have not met those of the other ranks yet."""
    return {"epoch": run.sums, "curve": run.report.sums}


def backward(run: Run, loss: Tensor) -> None:
    """Add this batch's part to the gradient. Lightning divides by the number of batches; the bits are to be its."""
    run.precision.scale(loss / run.plan.accumulate_grad_batches).backward()  # type: ignore[no-untyped-call]


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
    run.at.steps += 1
    return rate


@torch.inference_mode()
def evaluate(run: Run, stage: str, split: Split) -> tuple[dict[str, float], Tensor]:
    """`{stage}/loss`, `{stage}/acc` and `{stage}/f1` over a split, each sample once, and the confusion counts.

    What ranks and batches add up are sums and counts; what is divided is divided once.
    """
    classes = run.plan.data.classes
    run.wrapped.net.eval()
    same_buffers(run.wrapped.net)
    size = evaluation_batch(run.plan.batch_size)
    sampler = ShardSampler(len(split), size, rank=run.place.rank, world_size=run.place.world_size)
    totals = torch.zeros(3, dtype=torch.float64, device=run.device)
    counts = torch.zeros(classes, classes, dtype=torch.int64, device=run.device)
    for batch in batches(run, split, sampler):
        with run.precision.autocast():
            _, sums, outputs = judge(run, run.wrapped.evaluate, batch)
        totals += sums
        if classes:
            counts += task.confusion(outputs, batch.targets, classes)
    metrics = dict(task.means(stage, over_ranks(totals), classes))
    return metrics | ({f"{stage}/f1": task.macro_f1(over_ranks(counts))} if classes else {}), counts


def judge(run: Run, forward: Forward, batch: Batch) -> tuple[Tensor, Sums, Tensor]:
    """The loss summed over the batch, to go backward from, the batch's sums, and the net's outputs."""
    outputs = forward(batch.inputs)
    loss_sum = run.task.loss_sum(outputs, batch.targets)
    return loss_sum, task.sums(run.task, loss_sum, outputs, batch.targets), outputs


def batches(run: Run, split: Split, sampler: ShardSampler) -> Iterator[Batch]:
    """This rank's share of every global batch, on its device, as numbers."""
    for ids in sampler:
        batch = Batch(*(tensor.to(run.device, non_blocking=True) for tensor in split[ids]))
        yield run.data.as_float(batch, run.precision.dtype)


def over_ranks(sums: Tensor) -> Tensor:
    if dist.is_initialized():
        dist.all_reduce(sums)
    return sums
