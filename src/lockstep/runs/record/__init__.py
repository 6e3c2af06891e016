"""The record of a run: what each optimizer step did, on all ranks together.

Ranks buffer the values of steps. At an epoch's end, and before a checkpoint, rank 0 gathers them in one collective and
writes whole lines, which are on the disk before the checkpoint that counts them; a resume checks them against it.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.base.config_error import config_error
from lockstep.base.errors import NotFinite
from lockstep.base.files import finite, save_text, sync_folder
from lockstep.base.messages import all_gather_json
from lockstep.base.private_api.torch import BATCHNORM
from lockstep.base.random_state import has_dropout
from lockstep.base.streams import notice
from lockstep.base.structures import tensors_of
from lockstep.plan.plan import Plan
from lockstep.runs.record.fingerprint import digest, fingerprints
from lockstep.runs.record.step_lines import (
    BatchStats,
    Line,
    LoggedValues,
    Scalar,
    id_digests,
    step_lines,
    to_floats,
    to_scalar,
)
from lockstep.runs.run_files import RECORD, run_of
from lockstep.strategies.parallel.tensor_layout import full_state_dict


class RecordFile:
    """The record of a running run, on rank 0 only."""

    def __init__(self, folder: Path, run_metadata: Mapping[str, Any], earlier: bytes = b"") -> None:
        """Write a new record.jsonl: its `run` line, then the lines that a resumed run had recorded before."""
        self.path = folder / RECORD
        self.size, self.sha = len(earlier), hashlib.sha256(earlier)
        save_text(self.path, _json_line({"run": run_metadata}) + earlier.decode())
        sync_folder(folder)

    @property
    def offset(self) -> dict[str, int | str]:
        """Return the size and the SHA-256 of the lines after the first."""
        return {"size": self.size, "sha256": self.sha.hexdigest()}

    def append(self, lines: Iterable[Line]) -> None:
        content = "".join(map(_json_line, lines)).encode()
        with self.path.open("ab") as record:
            record.write(content)
        self.sha.update(content)
        self.size += len(content)

    def sync(self) -> None:
        """Sync the file, before a checkpoint that counts its lines is saved."""
        with self.path.open("rb") as record:
            os.fsync(record.fileno())


def _json_line(line: Line) -> str:
    return json.dumps({kind: finite(values) for kind, values in line.items()}) + "\n"


def earlier_lines(checkpoint: Path, run_dir: Path, offset: Mapping[str, Any]) -> bytes | None:
    """Return the lines after the first that a checkpoint counts, from its run's folder, or None if these are damaged.

    Without these lines a run may resume in another folder; in its own it would overwrite the record: a ConfigError.
    """
    run, lines = run_of(checkpoint), b""
    with suppress(OSError), (run / RECORD).open("rb") as record:
        record.readline()
        lines = record.read(offset["size"])
    if hashlib.sha256(lines).hexdigest() == offset["sha256"]:
        return lines
    if run == Path(os.path.realpath(run_dir)):  # pathlib's raises where links lead in a circle
        reason = f"its {RECORD} is not what it was when the checkpoint was saved"
        hint = f"ckpt_path={checkpoint} without resume and hydra.run.dir, which trains on in a new folder"
        raise config_error("hydra.run.dir", run_dir, reason, hint)
    return None


class StepRecorder:
    """The recorder of one rank.

    seconds: returns those of this rank by phase until now, for report.html. rank_seconds: of all ranks, on rank 0.
    """

    seconds: Callable[[], Mapping[str, float]] = staticmethod(dict)
    rank_seconds: Sequence[Mapping[str, float]] = ()

    def __init__(
        self, plan: Plan, rank: int, net: nn.Module, epoch: int = 0, batch: int = 0, offset: Any = None
    ) -> None:
        """Begin the record where training begins: at `epoch` (from 0) and `batch`, with the lines up to `offset`."""
        self.plan, self.rank, self.net, self.epoch = plan, rank, net, epoch
        self._begin(batch)
        self.file: RecordFile | None = None
        if rank == 0:
            folder, earlier = Path(plan.run_dir), None
            if plan.ckpt_path is not None and offset is not None:
                earlier = earlier_lines(Path(plan.ckpt_path), folder, offset)
                if earlier is None:
                    notice(f"{plan.ckpt_path}: its run's {RECORD} is not what it was; the new one begins here")
            metadata = {**run_metadata(plan, net), "per_rank_buffers": has_rank_buffers(plan, net)}
            self.file = RecordFile(folder, metadata, earlier or b"")

    def _begin(self, first_batch: int, carried: Mapping[str, Tensor] | None = None) -> None:
        """Begin at a batch of an epoch; `carried`: sums and id digest of earlier batches of its optimizer step."""
        zeros = {"window": torch.zeros(3, dtype=torch.float64), "ids": torch.tensor(0)}
        self.first_batch, self.carried = first_batch, carried or zeros
        self.batches: list[tuple[BatchStats, Tensor, int]] = []  # with the sample ids, and the index of the step
        self.steps: list[tuple[float, Sequence[Scalar], LoggedValues]] = []  # the rate, and norms of gradients
        self.fingerprints: dict[str, Mapping[str, str]] = {}  # by the index of a step, as JSON has it

    def batch(self, stats: BatchStats, ids: Tensor) -> None:
        """Add what a batch measured, and this rank's sample ids.

        With `detect_nan` a loss that is not finite raises here on a CPU, and in `flush` on a GPU, which never waits.
        """
        if self.plan.accelerator == "cpu":
            self._check_losses([stats], self.first_batch + len(self.batches))
        self.batches.append((stats, ids, len(self.steps)))

    def step(self, lr: float, norms: Sequence[Tensor], logged: LoggedValues | None = None) -> None:
        """End an optimizer step, after its batches."""
        self.steps.append((lr, [*map(to_scalar, norms)], logged or {}))

    def stepped(self, optimizers: Sequence[Optimizer], last: bool) -> None:
        """Take fingerprints of this rank after a step, and before a validation, which would replace its buffers."""
        if self.plan.record.weights == "step" or last:
            self.fingerprints[str(len(self.steps) - 1)] = fingerprints(self.net, optimizers)

    def flush(self, epoch: int, last_step: int) -> None:
        """Write the lines of all ranks' steps of an epoch (from 1); carry over what is accumulated of the next step."""
        self._check_losses([stats for stats, _, _ in self.batches], self.first_batch)
        if not self.batches:
            return
        columns, carried = self._columns()
        ranks, sharded = all_gather_json(columns), self.plan.strategy.sharded
        self.rank_seconds = [columns["seconds"] for columns in ranks]
        if self.file:
            rates = [rate for rate, _, _ in self.steps]
            self.file.append(step_lines(ranks, rates, epoch, last_step, sharded))
        self._begin(self.first_batch + len(self.batches), carried)

    def _columns(self) -> tuple[Mapping[str, Any], Mapping[str, Tensor]]:
        """Return this rank's values of each step, ready for JSON, and the sums of an unfinished step."""
        plan, steps = self.plan, len(self.steps)
        stats, ids, step_of_batch = zip(*self.batches, strict=True)
        sums = torch.zeros(steps + 1, 3, dtype=torch.float64)
        digests = torch.zeros(steps + 1, dtype=torch.int64)
        sums[0], digests[0] = self.carried["window"], self.carried["ids"]
        stats_by_kind = [to_floats(column) for column in zip(*stats, strict=True)]
        sums.index_add_(0, torch.tensor(step_of_batch), torch.tensor(stats_by_kind, dtype=torch.float64).T)
        data_rank = plan.data_rank(self.rank)
        batch_digests = id_digests(ids, self.first_batch, plan.batch_size, data_rank, plan.data_size)
        digests.index_add_(0, torch.tensor(step_of_batch), batch_digests)
        norms = [(index, norm) for index, (_, norms, _) in enumerate(self.steps) for norm in norms]
        squares = torch.tensor(to_floats([norm for _, norm in norms]), dtype=torch.float64).square()
        step_of_norm = torch.tensor([index for index, _ in norms], dtype=torch.int64)
        norm = torch.zeros(steps, dtype=torch.float64).index_add_(0, step_of_norm, squares).sqrt()
        columns = {
            **dict(zip(("loss_sum", "samples", "weight"), sums[:steps].T.tolist(), strict=True)),
            "grad_norm": norm.tolist(),
            "ids": digests[:steps].tolist(),
            "logged": [
                {
                    kind: {name: (float(total), weight, how) for name, (total, weight, how) in values.items()}
                    for kind, values in step.items()
                }
                for _, _, step in self.steps
            ],
            "fingerprints": self.fingerprints,
            "seconds": {**self.seconds()},
        }
        return columns, {"window": sums[steps], "ids": digests[steps]}

    def end_epoch(self, epoch: int, last_step: int) -> None:
        """Write the last lines of epoch `epoch` (from 1)."""
        self.flush(epoch, last_step)
        self.epoch = epoch
        self._begin(0)

    def validation(self, epoch: int, metrics: Mapping[str, float], step: int = 0, batch: int = 0) -> None:
        """Record a validation at an epoch's end, or after `batch` of its batches; raise NotFinite as for a batch."""
        if self.file:
            place = {"epoch": epoch} | ({"after_step": step, "after_batch": batch} if batch else {})
            self.file.append([{"validation": {**place, **metrics}}])
        loss = metrics.get("val/loss", 0.0)
        if self.plan.detect_nan and not math.isfinite(loss):
            raise not_finite(f"the validation loss after epoch {epoch}", loss)

    def end(self) -> None:
        """Record the digest of every parameter and buffer, at the end of the run."""
        state = tensors_of(full_state_dict(self.net))
        if self.file:
            self.file.append({"tensor": {"name": name, "digest": digest({name: state[name]})}} for name in state)
            self.file.sync()

    def _check_losses(self, batches: Sequence[BatchStats], first_batch: int) -> None:
        """Raise if a loss is NaN or infinite; `first_batch` is the number of the first within the epoch."""
        if self.plan.detect_nan:
            for batch, loss in enumerate(to_floats([loss for loss, *_ in batches]), start=first_batch):
                if not math.isfinite(loss):
                    step = self.plan.steps.steps_before(self.epoch, batch) + 1
                    raise not_finite(f"the loss of step {step}", loss)


def not_finite(name: str, value: float) -> NotFinite:
    return NotFinite(
        f"{name} is {value}; the checkpoints before it are kept; write a smaller optimizer.lr, gradient_clip_val=1.0, "
        "say, or detect_nan=false to train on."
    )


def run_metadata(plan: Plan, net: nn.Module) -> dict[str, str | int | float]:
    """Return what identifies a run beside its results; `dropout_rng` is "none" if no layer drops anything."""
    return {**plan.summary(), "dropout_rng": "per_rank" if has_dropout(net) else "none"}


def depends_on_world(plan: Plan, net: nn.Module) -> bool:
    """Whether results depend on the number of ranks by more than rounding."""
    return has_dropout(net) or (not plan.sync_batchnorm and bool(_batch_norms(net)))


def has_rank_buffers(plan: Plan, net: nn.Module) -> bool:
    """Whether buffers of ranks, replicas or micro-batches may differ after a step, as each changes them by itself."""
    tracks, strategy = any(module.track_running_stats for module in _batch_norms(net)), plan.strategy
    is_split = plan.data_size > 1 or (strategy.replicates and plan.devices > 1) or strategy.micro_batches > 1
    return is_split and ((tracks and not plan.sync_batchnorm) or bool(strategy.shared_buffers(net)))


def _batch_norms(net: nn.Module) -> list[nn.BatchNorm1d]:
    return [module for module in net.modules() if isinstance(module, BATCHNORM)]
