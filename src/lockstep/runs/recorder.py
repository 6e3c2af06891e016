"""Recorder: writes the record of a training by another program, for `lockstep.compare`; without Hydra and Lightning."""

import math
import os
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.base.config_error import require
from lockstep.base.messages import all_gather_json
from lockstep.base.optimizers import IMPLEMENTATION, learning_rate
from lockstep.base.random_state import has_dropout
from lockstep.base.structures import tensors_in, tensors_of
from lockstep.runs.record import RecordFile
from lockstep.runs.record.fingerprint import digest, fingerprints
from lockstep.runs.record.step_lines import Scalar, step_lines, to_scalar
from lockstep.runs.run_files import CONFIG, RECORD
from lockstep.strategies.parallel.tensor_layout import full_state_dict, gradient_norms, is_sharded

PRECISIONS = {torch.float64: "64-true", torch.float16: "16-true", torch.bfloat16: "bf16-true"}
HASHED = 4096  # values of a sample that count for the hash of its batch
ODD = 0x9E3779B97F4A7C15 - 2**64, 0xBF58476D1CE4E5B9 - 2**64  # as int64


class Recorder:
    """The recorder of a training loop: on rank 0 it writes `record.jsonl`, which `lockstep.compare` reads.

    Create one on every rank, after the net is wrapped, and call its methods on every rank. A loss is the mean over the
    samples of all ranks; gradient norms and logged values are those of rank 0. As a context manager it closes itself.
    """

    def __init__(
        self, folder: str | os.PathLike[str], net: nn.Module, *optimizers: Optimizer, precision: str = ""
    ) -> None:
        """Replace an earlier record in `folder`; `precision`: of autocast, such as "bf16-mixed"."""
        self.folder, self.net, self.optimizers, self.precision = Path(folder), net, optimizers, precision
        reason = "it is a run of Lockstep, whose record would be overwritten"
        require(not (self.folder / CONFIG).exists(), "folder", folder, reason, "runs/port")
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self.epoch, self.last_step, self.last_batch = 1, 0, 0  # of the run, and of the epoch
        if self.rank == 0:
            (self.folder / RECORD).unlink(missing_ok=True)
        self.file: RecordFile | None = None
        self.metadata: dict[str, Any] = {}
        self.batches: list[tuple[Scalar, int, Tensor | int]] = []  # of the next step: loss, samples, hash
        self.norms: list[Scalar] = []
        self.steps: list[tuple[list[tuple[Scalar, int, Tensor | int]], list[Scalar], float]] = []  # not yet written

    @staticmethod
    def callback(folder: str | os.PathLike[str]) -> Any:
        """Return a callback that records `Trainer.fit` of Lightning in `folder`."""
        return import_module("lockstep.runs.loggers.recorder_callback").RecorderCallback(folder)

    def add(self, loss: Tensor | float, inputs: Any) -> None:
        """Add a batch before the last one of an optimizer step: its mean loss, and its inputs or their number."""
        samples, contents = (inputs, 0) if isinstance(inputs, int) else summary_of(inputs)
        self.batches.append((to_scalar(loss.clone() if isinstance(loss, Tensor) else loss), samples, contents))
        self.last_batch += 1

    def step(self, loss: Tensor | float, inputs: Any) -> None:
        """Record an optimizer step with its last batch. Call it after `backward()`, before clipping and stepping."""
        self.add(loss, inputs)
        self.gradients(*self.optimizers)
        reason = "no parameter of the net that the optimizer steps has a gradient"
        require(bool(self.norms), "recorder.step", loss, reason, "loss.backward(); recorder.step(loss, inputs)")
        self.end_step()

    def gradients(self, *optimizers: Optimizer) -> None:
        """Record the norms of the gradients, and the learning rate, with which optimizers are about to step."""
        stepped = {each for optimizer in optimizers for group in optimizer.param_groups for each in group["params"]}
        parameters = [each for each in self.net.parameters() if each.grad is not None and each in stepped]
        self.norms += map(to_scalar, gradient_norms(parameters))
        self.rate = learning_rate(self.optimizers)
        self.metadata = self.metadata or self._run_metadata()  # now that schedules have set their first rates

    def end_step(self) -> None:
        """End an optimizer step whose batches and gradients are recorded."""
        self.steps.append((self.batches, self.norms, self.rate))
        self.last_step, self.batches, self.norms = self.last_step + 1, [], []

    def log(self, **values: Tensor | float) -> None:
        """Record the values of a validation within an epoch."""
        self._flush({"after_step": self.last_step, "after_batch": self.last_batch, **values})

    def end_epoch(self, **values: Tensor | float) -> None:
        """End an epoch, and record the values of its validation."""
        self._flush(values)
        self.epoch, self.last_batch = self.epoch + 1, 0

    def close(self) -> None:
        """Write the rest, and the digests of the final parameters and buffers, without the prefix that names share."""
        self._flush({})
        paths = [f"/{name.rpartition('.')[0].replace('.', '/')}" for name in self.net.state_dict()]
        inner = self.net.get_submodule(os.path.commonpath(paths)[1:].replace("/", "."))
        state = tensors_of(full_state_dict(inner))
        if self.file:
            self.file.append({"tensor": {"name": name, "digest": digest({name: state[name]})}} for name in state)
            self.file.sync()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is None or self.world == 1:  # the other ranks may not come
            self.close()

    def _flush(self, validation: dict[str, Any]) -> None:
        """Write the lines of all ranks' steps until now, fingerprints after the last, and the line of a validation."""
        if self.steps:
            batches, norms, rates = zip(*self.steps, strict=True)
            columns = {
                "loss_sum": [sum(float(loss) * samples for loss, samples, _ in step) for step in batches],
                "samples": [sum(samples for _, samples, _ in step) for step in batches],
                "ids": [sum(int(contents) for _, _, contents in step) for step in batches],
                "grad_norm": [math.sqrt(sum(norm * norm for norm in map(float, step))) for step in norms],
                **{"weight": [0.0] * len(rates), "logged": [{}] * len(rates)},
                "fingerprints": {str(len(rates) - 1): fingerprints(self.net, self.optimizers)},
            }
            ranks, self.steps = all_gather_json(columns), []
            if self.rank == 0:
                self.folder.mkdir(parents=True, exist_ok=True)
                self.file = self.file or RecordFile(self.folder, self.metadata)
                lines = [*step_lines(ranks, rates, self.epoch, self.last_step, self.metadata["strategy"] == "fsdp")]
                self.file.append(
                    {kind: {"contents" if key == "ids" else key: value for key, value in values.items()}}
                    for line in lines
                    for kind, values in line.items()
                )
        if self.file and validation:
            values = {name: float(to_scalar(value)) for name, value in validation.items()}
            self.file.append([{"validation": {"epoch": self.epoch, **values}}])

    def _run_metadata(self) -> dict[str, Any]:
        weight, several = next(self.net.parameters()), self.world > 1
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        return {
            **{"engine": "other", "devices": self.world, "num_nodes": 1, "world_size": self.world, "micro_batches": 1},
            **{"threads": torch.get_num_threads(), "gradient_sync": "unknown" if several else "none"},
            "strategy": "fsdp" if is_sharded(weight) else "ddp" if several else "single",
            "accelerator": "gpu" if weight.is_cuda else weight.device.type,
            "precision": self.precision or PRECISIONS.get(weight.dtype, "32-true"),
            "sync_batchnorm": any(isinstance(module, nn.SyncBatchNorm) for module in self.net.modules()),
            **{"dropout_rng": "per_rank" if has_dropout(self.net) else "none", "per_rank_buffers": several},
            "optimizers": [{"parameters": len(group["params"]), **options_of(group)} for group in groups],
        }


def options_of(group: dict[str, Any]) -> dict[str, Any]:
    """Return what decides how a parameter group steps."""
    left_out = ("params", *IMPLEMENTATION, "initial_lr")
    return {
        key: value for key, value in group.items() if key not in left_out and isinstance(value, float | int | tuple)
    }


def summary_of(inputs: Any) -> tuple[int, Tensor]:
    """Return the number of samples in the first tensor of a batch, and a hash of them in any order.

    Hashes of ranks add up. A batch without tensors counts as one sample.
    """
    tensor = next((each.detach() for each in tensors_in(inputs) if each.dim()), torch.zeros(1))
    rows = tensor.reshape(len(tensor), -1)
    rows = rows[:, :: max(1, rows.shape[1] // HASHED)]
    bits = (rows.double() + 0.0).view(torch.int64) if rows.is_floating_point() else rows.long()  # of -0.0 as of 0.0
    weights = _mix(torch.arange(1, bits.shape[1] + 1, device=bits.device))
    return len(tensor), _mix((bits * weights).sum(1)).sum()


def _mix(numbers: Tensor) -> Tensor:
    numbers = (numbers ^ (numbers >> 30)) * ODD[0]
    return (numbers ^ (numbers >> 27)) * ODD[1]
