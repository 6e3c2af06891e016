"""The record of a run as it grows: what each optimizer step did, on all ranks together.

While an epoch runs, only single numbers are kept, on a GPU where they lie there, and the gradient's norm is taken;
nothing waits for a GPU but, now and then, the look for a loss that is no number. At the epoch's end, and before a
checkpoint, the ranks' parts meet at rank 0 in one collective, and rank 0 writes the lines.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep import choices
from lockstep.data.line import learned
from lockstep.ending import NotFinite
from lockstep.plan import Plan
from lockstep.record import Metrics, append_record, begin_record, digest
from lockstep.task import Judged, Kept, kept, rows, values

STRIDE = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: multiples of it are spread evenly, so that ids and positions do not meet."""

GPU_LOOK_EVERY = 50
"""Batches between two looks at losses that lie on a GPU; on a CPU each is looked at."""

COLUMNS = 4
"""Of a rank's part of an epoch: loss sum, sample count, gradient norm, digest of the sample ids."""


class Recorder:
    """One for each rank. Both engines tell it the same things at the same moments."""

    def __init__(self, plan: Plan, rank: int, net: nn.Module, epoch: int = 0, batch: int = 0, lines: int = 0) -> None:
        """`epoch` (from 0) and `batch` are where training begins, behind that many lines of the record so far."""
        self.plan, self.rank, self.net = plan, rank, net
        self.parameters = list(net.parameters())
        self.window = plan.accumulate_grad_batches
        self.folder = Path(plan.run_dir)
        self.epoch, self.first_batch = epoch, batch
        self.look_every = (1 if plan.accelerator == "cpu" else GPU_LOOK_EVERY) if plan.detect_nan else 0
        self._begin()
        self.carry({"window": torch.zeros(3, dtype=torch.float64), "ids": torch.tensor(0)})
        self.lines = 0
        if rank == 0:
            before = Path(plan.ckpt_path).parent.parent if plan.ckpt_path and lines else self.folder
            self.lines = begin_record(self.folder, plan.summary(), before, lines)

    def batch(self, judged: Judged, ids: Tensor) -> None:
        """A batch has been through forward and backward: what it adds, and this rank's sample ids of it.

        Raises:
            NotFinite: a loss is no number, and the plan has `detect_nan`.
        """
        self.batches.append(judged)
        self.ids.append(ids)
        if self.look_every == 1:
            if not math.isfinite(judged.loss_sum):
                self._complain(len(self.batches) - 1, float(judged.loss_sum))
        elif self.look_every and len(self.batches) % self.look_every == 0:
            self._look()

    def step(self, lr: float) -> None:
        """An optimizer step is due: the gradient is complete, averaged over ranks, and not clipped yet."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norms = torch._foreach_norm(gradients) if gradients else ()
        self.norms += map(kept, norms)
        self.norm_counts.append(len(norms))
        self.rates.append(lr)

    def flush(self, epoch: int, last_step: int) -> None:
        """Join the ranks' parts and write a line for each step of epoch `epoch` (from 1) that has none yet.

        To be called by every rank. What is under way of the next step is carried over.
        """
        if self.look_every:
            self._look()
        sums, digests = self._windows()
        parts = self._gathered(self._part(sums, digests))
        if self.rank == 0 and self.rates:
            self.lines += append_record(self.folder, "step", self._lines(parts, epoch, last_step))
        done = len(self.rates)
        self.carry({"window": sums[done:].sum(0), "ids": digests[done:].sum(0)})  # of one window, or none
        self.first_batch += len(self.batches)
        self._begin()

    def carry(self, carried: Mapping[str, Tensor]) -> None:
        """Take over what a rank has of an optimizer step that is under way: sums (3,), and its digest."""
        self.carried = {name: carried[name] for name in ("window", "ids")}

    def end_epoch(self, epoch: int, last_step: int) -> None:
        """All steps of epoch `epoch` are done."""
        self.flush(epoch, last_step)
        self.epoch, self.first_batch = epoch, 0

    def validation(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """After the epoch's end."""
        if self.rank == 0:
            self.lines += append_record(self.folder, "validation", [{"epoch": epoch, **metrics}])
        if self.plan.detect_nan and not math.isfinite(metrics["val/loss"]):
            raise not_finite(f"the validation loss after epoch {epoch}", metrics["val/loss"])

    def end(self) -> None:
        """The run is over: the digest of every parameter and buffer."""
        if self.rank == 0:
            lines = ({"name": name, "digest": digest({name: value})} for name, value in self.net.state_dict().items())
            append_record(self.folder, "tensor", lines)

    def _look(self) -> None:
        """Raise if a loss that nobody has looked at yet is no number. On a GPU this waits for it."""
        latest = self.batches[-self.look_every :]
        for index, loss in enumerate(rows(latest)[:, 0].tolist(), start=len(self.batches) - len(latest)):
            if not math.isfinite(loss):
                self._complain(index, loss)

    def _complain(self, index: int, loss: float) -> None:
        steps = self.plan.total_steps // self.plan.max_epochs
        step = self.epoch * steps + (self.first_batch + index) // self.window + 1
        raise not_finite(f"the loss of step {step}", loss)

    def _begin(self) -> None:
        self.batches: list[Judged] = []
        self.ids: list[Tensor] = []
        self.norms: list[Kept] = []
        self.norm_counts: list[int] = []
        self.rates: list[float] = []

    def _windows(self) -> tuple[Tensor, Tensor]:
        """Sums (windows, 3) and digests (windows,) of the optimizer steps; the last may be under way."""
        under_way = self.first_batch % self.window
        windows = (under_way + torch.arange(len(self.batches))) // self.window
        count = -(-(under_way + len(self.batches)) // self.window)
        sums, digests = torch.zeros(count, 3, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
        if under_way:
            sums[0], digests[0] = self.carried["window"], self.carried["ids"]
        if self.batches:
            sums.index_add_(0, windows, rows(self.batches))
            digests.index_add_(0, windows, self._digests())
        return sums, digests

    def _part(self, sums: Tensor, digests: Tensor) -> Tensor:
        """(steps, COLUMNS) float64; the digest's 64 bits lie in a float's place."""
        steps = len(self.rates)
        if steps == 0:
            return torch.zeros(0, COLUMNS, dtype=torch.float64)
        sums, digests = sums[:steps], digests[:steps]
        norms = torch.tensor(values(self.norms), dtype=torch.float64)
        of_step = torch.arange(steps).repeat_interleave(torch.tensor(self.norm_counts))
        norm = torch.zeros(steps, dtype=torch.float64).index_add_(0, of_step, norms.square()).sqrt()
        return torch.stack([sums[:, 0], sums[:, 2], norm, digests.view(torch.float64)], dim=1)

    def _digests(self) -> Tensor:
        """int64, one a batch: the sum of a hash of each (sample id, its position in the epoch's order).

        A sum, so that ranks can add theirs in any order: equal digests mean that every sample stood at its place.
        """
        lengths = [len(ids) for ids in self.ids]
        world, ends = self.plan.world_size, np.cumsum(lengths)
        ids = torch.cat(self.ids).cpu().numpy().astype(np.uint64)
        batches = np.repeat(np.arange(len(lengths)), lengths)
        within = np.arange(len(ids)) - np.repeat(ends - lengths, lengths)
        positions = (self.first_batch + batches) * self.plan.batch_size + self.rank + within * world
        hashes = _mixed(ids * STRIDE + positions.astype(np.uint64))
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
        return torch.from_numpy((running[ends] - running[ends - lengths]).view(np.int64))

    def _gathered(self, part: Tensor) -> Tensor:
        """(ranks, steps, COLUMNS) on rank 0; what others hold does not matter."""
        if not dist.is_initialized():
            return part[None]
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        part = part.to(device)
        parts = [torch.empty_like(part) for _ in range(self.plan.world_size)] if self.rank == 0 else None
        dist.gather(part, parts)
        return torch.stack(parts).cpu() if parts else part[None]

    def _lines(self, parts: Tensor, epoch: int, last_step: int) -> Iterable[Mapping[str, int | float | str]]:
        """A rank's norm is not that of rank 0 only where the ranks have parted; `ranks_apart` is by how much."""
        losses, counts = parts[:, :, 0].sum(0).tolist(), parts[:, :, 1].sum(0).tolist()
        norms = parts[0, :, 2].tolist()
        alike = (parts[:, :, 2] == parts[0, :, 2]) | (parts[:, :, 2].isnan() & parts[0, :, 2].isnan())
        apart = (parts[:, :, 2] - parts[0, :, 2]).abs().masked_fill(alike, 0.0).amax(0).tolist()
        digests = parts[:, :, 3].contiguous().view(torch.int64).sum(0).tolist()
        for index, rate in enumerate(self.rates):
            yield {
                "epoch": epoch,
                "step": last_step - len(self.rates) + index + 1,
                "samples": int(counts[index]),
                "ids": f"{digests[index] % 2**64:016x}",
                "lr": rate,
                "loss_sum": losses[index],
                "grad_norm": norms[index],
                "ranks_apart": apart[index],
            }


def not_finite(what: str, value: float) -> NotFinite:
    instead = "a smaller optimizer.lr, gradient_clip_val=1.0, say, or detect_nan=false to train on"
    return NotFinite(f"{what} is {value}; the checkpoints before it are kept; write {instead}.")


def results_of(
    plan: Plan, net: nn.Module, *, epochs: int, steps: int, seconds: float, trained: int, measured: Mapping[str, float]
) -> Metrics:
    """What a run returns, and metrics.json holds.

    Args:
        epochs: done so far, in earlier runs too where this one was resumed, as `steps`.
        seconds: of training, validation left out.
        trained: samples that this run trained on.
    """
    return {
        **plan.summary(),
        "epochs": epochs,
        "steps": steps,
        "train_seconds": seconds,
        "samples_per_second": trained / seconds if trained else 0.0,
        **measured,
        **(learned(net, plan.data.predict) if isinstance(plan.data, choices.Line) else {}),
        "digest": digest(net.state_dict()),
    }


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Uint64 to uint64, every bit depending on every bit (Steele, Lea and Flood, SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = numbers ^ (numbers >> np.uint64(31))
    return mixed
