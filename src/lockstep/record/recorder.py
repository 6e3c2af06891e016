"""The record of a run as it grows: what each optimizer step did, on all ranks together.

While an epoch runs each rank buffers its own part. At the epoch's end, and before a checkpoint, the parts meet at rank
0 in one collective, and rank 0 writes the lines.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.objectives.objective import LOSS
from lockstep.parallel.messages import gather_bytes
from lockstep.plan import Plan
from lockstep.progress import notice
from lockstep.record.digest import digest
from lockstep.record.file import RecordFile, RecordOffset, lines_so_far, missing_steps
from lockstep.record.fingerprint import fingerprints
from lockstep.record.finite_losses import FiniteLosses, not_finite
from lockstep.record.run_metadata import has_rank_buffers, run_metadata
from lockstep.record.step_buffer import StepBuffer, step_lines
from lockstep.structures import tensors_of
from lockstep.sums.running import BatchStats


class Recorder:
    """One for each rank. Both engines call it at the same moments with the same values."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        net: nn.Module,
        *,
        epoch: int = 0,
        batch: int = 0,
        steps: int = 0,
        mark: RecordOffset | None = None,
    ) -> None:
        """`epoch` (from 0) and `batch` are where training begins, `steps` what it has done, the record by then `mark`.

        Raises:
            ConfigError: the run resumes in its own folder, and the record there is not what it was.
        """
        self.plan, self.rank, self.net = plan, rank, net
        self.epoch = epoch
        self.steps, self.losses = StepBuffer(plan, rank, epoch, batch), FiniteLosses(plan)
        self.file = self._file(steps, mark or RecordOffset()) if rank == 0 else None

    def _file(self, steps: int, mark: RecordOffset) -> RecordFile:
        folder, earlier = Path(self.plan.run_dir), b""
        run = {**run_metadata(self.plan, self.net), "per_rank_buffers": has_rank_buffers(self.plan, self.net)}
        if self.plan.ckpt_path is not None and mark.lines:
            earlier, word = lines_so_far(Path(self.plan.ckpt_path), folder, mark)
            if word:
                notice(word)
            if missing := missing_steps(earlier, steps):
                run["missing_steps"] = missing
        return RecordFile(folder, run, earlier)

    @cached_property
    def parameters(self) -> list[nn.Parameter]:
        """As they are once training has begun: a strategy may put others in their place."""
        return list(self.net.parameters())

    @property
    def mark(self) -> RecordOffset:
        """How far the record has come; on rank 0 alone."""
        return self.file.mark if self.file else RecordOffset()

    def sync(self) -> None:
        """The record's lines, onto the disk."""
        if self.file:
            self.file.sync()

    def batch(self, stats: BatchStats, ids: Tensor) -> None:
        """A batch has been through forward and backward: what it adds, and this rank's sample ids of it.

        Raises:
            NotFinite: a loss is NaN or infinite, and the plan has `detect_nan`.
        """
        self.losses.add(stats[LOSS], self.epoch, self.steps.next_batch)
        self.steps.batch(stats, ids)

    def norms(self, parameters: Iterable[nn.Parameter]) -> Sequence[Tensor]:
        """Return the norm of each gradient that is not None, reduced over all ranks."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        return self.plan.strategy.tensors.gradient_norms(gradients)

    def stepped(self, *optimizers: Optimizer, last: bool | None = None) -> None:
        """Take fingerprints after an optimizer step, when its optimizers and schedules have stepped.

        Args:
            last: whether it is the epoch's last; None: by the plan's count.

        Each rank takes the fingerprints of its own memory here, before anything is shared: after the validation, say,
        all have the buffers of rank 0.
        """
        last = self.steps.next_batch == self.plan.steps.epoch_batches if last is None else last
        if self.plan.record.weights == "step" or last:
            step, local_shard = len(self.steps.rates) - 1, self.plan.strategy.tensors.local_shard
            self.steps.fingerprints[step] = fingerprints(self.net, optimizers, local_shard)

    def flush(self, epoch: int, last_step: int) -> None:
        """Join the ranks' parts and write a line for each step of epoch `epoch` (from 1) that has none yet.

        To be called by every rank. The part of the next step that has been accumulated is carried over.
        """
        self.losses.check()
        if not self.steps.batches:
            return
        columns, carried = self.steps.columns()
        message = json.dumps(columns).encode()
        parts = gather_bytes(message) if dist.is_initialized() else [message]
        if self.file:
            ranks, sharded = [json.loads(part) for part in parts], self.plan.strategy.sharded
            self.file.append(step_lines(ranks, self.steps.rates, epoch, last_step, sharded))
        self.steps = StepBuffer(self.plan, self.rank, self.epoch, self.steps.next_batch, carried)

    @property
    def carried(self) -> Mapping[str, Tensor]:
        """This rank's part of an unfinished optimizer step, behind the last line: its sums, its digest."""
        return self.steps.carried

    def load_partial(self, carried: Mapping[str, Tensor]) -> None:
        """Take over what a rank had."""
        self.steps.carried = {name: carried[name] for name in ("window", "ids")}

    def end_epoch(self, epoch: int, last_step: int) -> None:
        """All steps of epoch `epoch` are done."""
        self.flush(epoch, last_step)
        self.epoch = self.steps.epoch = epoch
        self.steps.first_batch = 0

    def validation(self, epoch: int, metrics: Mapping[str, float], step: int = 0, batch: int = 0) -> None:
        """After the epoch's end, or after so many of its batches (`batch`), with what it was measured to be."""
        if self.file:
            where = {"epoch": epoch} | ({"after_step": step, "after_batch": batch} if batch else {})
            self.file.append([{"validation": {**where, **metrics}}])
        loss = metrics.get("val/loss", 0.0)
        if self.plan.detect_nan and not math.isfinite(loss):
            raise not_finite(f"the validation loss after epoch {epoch}", loss)

    def end(self) -> None:
        """The run is over: the digest of every parameter and buffer."""
        state = tensors_of(self.plan.strategy.tensors.state_dict(self.net))
        if self.file:
            self.file.append({"tensor": {"name": name, "digest": digest({name: own})}} for name, own in state.items())
            self.file.sync()
