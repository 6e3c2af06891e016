"""The record of a run as it grows: what each optimizer step did, on all ranks together.

While an epoch runs, only single numbers are kept, on a GPU where they lie there, and the gradient's norm is taken;
nothing waits for a GPU but, now and then, the look for a loss that is no number. At the epoch's end, and before a
checkpoint, the ranks' parts meet at rank 0 in one collective, and rank 0 writes the lines.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep import sample_ids
from lockstep.digest import digest
from lockstep.errors import NotFinite
from lockstep.fingerprint import SIZE, fingerprints
from lockstep.plan import Plan
from lockstep.private_api.torch import norms
from lockstep.progress import notice
from lockstep.record_file import Mark, RecordFile, lines_so_far, missing_steps
from lockstep.record_lines import COLUMNS, step_lines
from lockstep.run_files import FINGERPRINTED
from lockstep.running_sums import BatchStats, Scalar, stack_stats, to_floats, to_scalar
from lockstep.task import LOSS, SAMPLES
from lockstep.world_dependence import heading, per_rank_buffers

GPU_LOOK_EVERY = 50
"""Batches between two looks at losses that lie on a GPU; on a CPU each is looked at."""


class Recorder:
    """One for each rank. Both engines tell it the same things at the same moments."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        net: nn.Module,
        *,
        epoch: int = 0,
        batch: int = 0,
        steps: int = 0,
        mark: Mark | None = None,
    ) -> None:
        """`epoch` (from 0) and `batch` are where training begins, `steps` what it has done, the record by then `mark`.

        Raises:
            ConfigError: the run goes on in its own folder, and the record there is not what it was.
        """
        self.plan, self.rank, self.net = plan, rank, net
        self.parameters = list(net.parameters())
        self.window = plan.accumulate_grad_batches
        self.epoch, self.first_batch = epoch, batch
        self.look_every = (1 if plan.accelerator == "cpu" else GPU_LOOK_EVERY) if plan.detect_nan else 0
        self._begin()
        none = torch.zeros(len(plan.task.sums), dtype=torch.float64)
        self.load_partial({"window": none, "ids": torch.tensor(0)})
        self.file = self._file(steps, mark or Mark()) if rank == 0 else None

    def _file(self, steps: int, mark: Mark) -> RecordFile:
        folder, earlier = Path(self.plan.run_dir), b""
        run = {**heading(self.plan, self.net), "per_rank_buffers": per_rank_buffers(self.plan, self.net)}
        if self.plan.ckpt_path is not None and mark.lines:
            earlier, word = lines_so_far(Path(self.plan.ckpt_path), folder, mark)
            if word:
                notice(word)
            if missing := missing_steps(earlier, steps):
                run["missing_steps"] = missing
        return RecordFile(folder, run, earlier)

    @property
    def mark(self) -> Mark:
        """How far the record has come; on rank 0 alone."""
        return self.file.mark if self.file else Mark()

    def sync(self) -> None:
        """The record's lines, onto the disk."""
        if self.file:
            self.file.sync()

    def batch(self, stats: BatchStats, ids: Tensor) -> None:
        """A batch has been through forward and backward: what it adds, and this rank's sample ids of it.

        Raises:
            NotFinite: a loss is no number, and the plan has `detect_nan`.
        """
        self.batches.append(stats)
        self.ids.append(ids)
        if self.look_every == 1:
            if not math.isfinite(stats[LOSS]):
                self._raise_not_finite(len(self.batches) - 1, float(stats[LOSS]))
        elif self.look_every and len(self.batches) % self.look_every == 0:
            self._check_finite()

    def step(self, lr: float) -> None:
        """An optimizer step is due: the gradient is complete, averaged over ranks, and not clipped yet."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        self.norms += map(to_scalar, norms(gradients))
        self.norm_counts.append(len(gradients))
        self.rates.append(lr)

    def stepped(self, optimizer: Optimizer) -> None:
        """The step and its batch have been told of, its optimizer and schedule have moved on.

        Each rank takes the fingerprints of its own memory here, before anything is shared: after the validation, say,
        all have the buffers of rank 0.
        """
        if self.plan.record.weights == "step" or self.first_batch + len(self.batches) == self.plan.epoch_batches:
            self.fingerprints[len(self.rates) - 1] = fingerprints(self.net, optimizer)

    def flush(self, epoch: int, last_step: int) -> None:
        """Join the ranks' parts and write a line for each step of epoch `epoch` (from 1) that has none yet.

        To be called by every rank. What is under way of the next step is carried over.
        """
        if self.look_every:
            self._check_finite()
        sums, digests = self._windows()
        part, own = self._part(sums, digests), self._own_fingerprints()
        parts = self._gathered(torch.cat([part.flatten(), own.flatten().view(torch.float64)]))
        if self.file and self.rates:
            world, split = len(parts), part.numel()
            steps = parts[:, :split].view(world, *part.shape)
            prints = parts[:, split:].contiguous().view(torch.uint8).view(world, *own.shape)
            self.file.append(
                step_lines(
                    steps, dict(zip(self.fingerprints, prints.unbind(1), strict=True)), self.rates, epoch, last_step
                )
            )
        done = len(self.rates)
        self.load_partial({"window": sums[done:].sum(0), "ids": digests[done:].sum(0)})  # of one window, or none
        self.first_batch += len(self.batches)
        self._begin()

    def load_partial(self, carried: Mapping[str, Tensor]) -> None:
        """Take over what a rank has of an optimizer step that is under way: its sums, and its digest."""
        self.carried = {name: carried[name] for name in ("window", "ids")}

    def end_epoch(self, epoch: int, last_step: int) -> None:
        """All steps of epoch `epoch` are done."""
        self.flush(epoch, last_step)
        self.epoch, self.first_batch = epoch, 0

    def validation(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """After the epoch's end."""
        if self.file:
            self.file.append([{"validation": {"epoch": epoch, **metrics}}])
        if self.plan.detect_nan and not math.isfinite(metrics["val/loss"]):
            raise not_finite(f"the validation loss after epoch {epoch}", metrics["val/loss"])

    def end(self) -> None:
        """The run is over: the digest of every parameter and buffer."""
        if self.file:
            state = self.net.state_dict()
            self.file.append({"tensor": {"name": name, "digest": digest({name: own})}} for name, own in state.items())
            self.file.sync()

    def _check_finite(self) -> None:
        """Raise if a loss that nobody has looked at yet is no number. On a GPU this waits for it."""
        latest = self.batches[-self.look_every :]
        losses = stack_stats(self.plan.task, latest)[:, LOSS].tolist()
        for index, loss in enumerate(losses, start=len(self.batches) - len(latest)):
            if not math.isfinite(loss):
                self._raise_not_finite(index, loss)

    def _raise_not_finite(self, index: int, loss: float) -> None:
        steps = self.plan.total_steps // self.plan.max_epochs
        step = self.epoch * steps + (self.first_batch + index) // self.window + 1
        raise not_finite(f"the loss of step {step}", loss)

    def _begin(self) -> None:
        self.batches: list[BatchStats] = []
        self.ids: list[Tensor] = []
        self.norms: list[Scalar] = []
        self.norm_counts: list[int] = []
        self.rates: list[float] = []
        self.fingerprints: dict[int, Tensor] = {}  # of those steps that have them

    def _windows(self) -> tuple[Tensor, Tensor]:
        """Sums (windows, sums) and digests (windows,) of the optimizer steps; the last may be under way."""
        under_way = self.first_batch % self.window
        windows = (under_way + torch.arange(len(self.batches))) // self.window
        count = -(-(under_way + len(self.batches)) // self.window)
        sums = torch.zeros(count, len(self.plan.task.sums), dtype=torch.float64)
        digests = torch.zeros(count, dtype=torch.int64)
        if under_way:
            sums[0], digests[0] = self.carried["window"], self.carried["ids"]
        if self.batches:
            sums.index_add_(0, windows, stack_stats(self.plan.task, self.batches))
            of_batches = sample_ids.digests(
                self.ids, self.first_batch, self.plan.batch_size, self.rank, self.plan.world_size
            )
            digests.index_add_(0, windows, of_batches)
        return sums, digests

    def _part(self, sums: Tensor, digests: Tensor) -> Tensor:
        """(steps, COLUMNS) float64; the digest's 64 bits lie in a float's place."""
        steps = len(self.rates)
        if steps == 0:
            return torch.zeros(0, COLUMNS, dtype=torch.float64)
        sums, digests = sums[:steps], digests[:steps]
        norms = torch.tensor(to_floats(self.norms), dtype=torch.float64)
        of_step = torch.arange(steps).repeat_interleave(torch.tensor(self.norm_counts))
        norm = torch.zeros(steps, dtype=torch.float64).index_add_(0, of_step, norms.square()).sqrt()
        return torch.stack([sums[:, LOSS], sums[:, SAMPLES], norm, digests.view(torch.float64)], dim=1)

    def _own_fingerprints(self) -> Tensor:
        """(steps that have them, kinds, SIZE) uint8."""
        none = torch.zeros(0, len(FINGERPRINTED), SIZE, dtype=torch.uint8)
        return torch.cat([none, *(own[None] for own in self.fingerprints.values())])

    def _gathered(self, part: Tensor) -> Tensor:
        """(ranks, numbers) on rank 0 of each rank's numbers; what others hold does not matter."""
        if not dist.is_initialized():
            return part[None]
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        part = part.to(device)
        parts = [torch.empty_like(part) for _ in range(self.plan.world_size)] if self.rank == 0 else None
        dist.gather(part, parts)
        return torch.stack(parts).cpu() if parts else part[None]


def not_finite(what: str, value: float) -> NotFinite:
    instead = "a smaller optimizer.lr, gradient_clip_val=1.0, say, or detect_nan=false to train on"
    return NotFinite(f"{what} is {value}; the checkpoints before it are kept; write {instead}.")
