"""What a raw run leaves: the lines of record.jsonl as docs/agreement.md describes them, digests, and last.ckpt."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.files import finite
from lockstep.schemas.groups import better
from tests.mirror.module import gathered, value_of

LOSSES = ("val_loss", "val/loss", "valid_loss", "validation_loss", "train/loss")
IMPLEMENTATION = ("params", "foreach", "fused", "capturable", "differentiable")
"""Options of a parameter group that choose how its step is computed."""


def data_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor in logical order."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def digest(state: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all tensors of a state_dict, in its order."""
    sha = hashlib.sha256()
    for tensor in state.values():
        if isinstance(tensor, Tensor):
            sha.update(data_of(tensor))
    return sha.hexdigest()


def hash_ids(ids: Tensor, first: int, step: int) -> int:
    """Return the sum of a hash of each (id, its position in the order of the epoch), modulo 2^64.

    The positions are first, first + step, … The hash is SplitMix64's, of id · (2^64 over the golden ratio) + position.
    """
    position = np.arange(first, first + step * len(ids), step, dtype=np.uint64)[: len(ids)]
    mixed = ids.numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + position
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))


def fingerprints(module: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, str]:
    """Return digests of this rank's parameters by name, its buffers by name, and its optimizers' options and states."""
    weights = dict(module.named_parameters())
    every = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    buffers = {name: value for name, value in module.state_dict().items() if name not in every}
    names: dict[Tensor, str] = {parameter: name for name, parameter in weights.items()}
    values: list[tuple[str, Any]] = []
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            values += [(name, None) for name in sorted(names.get(parameter, "?") for parameter in group["params"])]
            for key in sorted(group.keys() - {*IMPLEMENTATION}):
                items = group[key] if isinstance(group[key], tuple | list) else [group[key]]
                values += [(f"{key}[{index}]", value) for index, value in enumerate(items) if value is not None]
        states = sorted((names.get(parameter, "?"), state) for parameter, state in optimizer.state.items())
        for name, state in states:
            values += [(f"{name}.{key}", value) for key, value in sorted(state.items()) if value is not None]
    return {
        "weights": hashed(sorted(weights.items())),
        "buffers": hashed((name, value) for name, value in sorted(buffers.items()) if isinstance(value, Tensor)),
        "optimizer": hashed(values),
    }


def hashed(values: Iterable[tuple[str, Any]]) -> str:
    """Hash names and values; numbers, and tensors without dimensions, as float64."""
    sha = hashlib.sha256()
    for name, value in values:
        if isinstance(value, Tensor | int | float):
            tensor = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
            sha.update(f"{name}{f' {tensor.dtype} {tuple(tensor.shape)}' if tensor.dim() else ''}\n".encode())
            sha.update(data_of(tensor if tensor.dim() else tensor.double()))
        else:
            sha.update(f"{name}\n".encode() if value is None else f"{name} {value!r}\n".encode())
    return sha.hexdigest()


class Record:
    """record.jsonl. Each rank collects its steps of an epoch; at its end rank 0 writes those of all ranks."""

    def __init__(self, folder: Path, rank: int, metadata: Mapping[str, Any]) -> None:
        self.rank, self.path = rank, folder / "record.jsonl"
        self.steps: list[dict[str, Any]] = []
        self.window: list[tuple[float, int, float, int]] = []
        if rank == 0:
            self.path.write_text("")
        self.write([{"run": metadata}])

    def write(self, lines: Iterable[Mapping[str, Mapping[str, Any]]]) -> None:
        if self.rank == 0:
            with self.path.open("a") as file:
                file.writelines(
                    json.dumps({kind: finite(values) for kind, values in line.items()}) + "\n" for line in lines
                )

    def batch(self, loss_sum: float, samples: int, weight: float, ids: int) -> None:
        """Add a batch: its loss times its weight, its samples, what its loss is a mean over, the hash of its ids."""
        self.window.append((loss_sum, samples, weight, ids))

    def step(self, rate: float, norms: Sequence[float], logged: Mapping[str, Any], prints: Any = None) -> None:
        """Add an optimizer step, after its batches, with the norm of each gradient."""
        losses, samples, weights, ids = zip(*self.window, strict=True)
        sums = {"loss_sum": sum(losses), "samples": sum(samples), "weight": sum(weights), "ids": sum(ids)}
        norm = math.sqrt(sum(norm * norm for norm in norms))
        self.steps.append({**sums, "lr": rate, "grad_norm": norm, "logged": logged, "fingerprints": prints})
        self.window = []

    def flush(self, epoch: int, last_step: int) -> None:
        """Write the steps of an epoch up to now. To be called by every rank."""
        first = last_step - len(self.steps) + 1
        for number, ranks in enumerate(zip(*gathered(self.steps), strict=True), start=first):
            place = {"epoch": epoch, "step": number}
            self.write([{"step": {**place, **step_line(ranks)}}])
            if all(step["fingerprints"] for step in ranks):
                kinds = ranks[0]["fingerprints"]
                self.write(
                    [{"fingerprint": place | {kind: [r["fingerprints"][kind] for r in ranks] for kind in kinds}}]
                )
        self.steps = []

    def end(self, state: Mapping[str, Any]) -> None:
        tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        self.write({"tensor": {"name": name, "digest": digest({name: tensors[name]})}} for name in tensors)


def step_line(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of a step over all ranks; `loss_sum` is the mean over what counts, times the samples."""
    loss, samples, weight = (sum(step[key] for step in ranks) for key in ("loss_sum", "samples", "weight"))
    norms = [step["grad_norm"] for step in ranks]
    line: dict[str, Any] = {
        "samples": samples,
        "ids": f"{sum(step['ids'] for step in ranks) % 2**64:016x}",
        "lr": ranks[0]["lr"],
        "loss_sum": loss if weight in (samples, 0) else loss / weight * samples,
        "grad_norm": norms[0],
        "grad_norm_spread": max(0.0, *(abs(norm - norms[0]) for norm in norms)) if len(norms) > 1 else 0.0,
    }
    for kind in ("logged", "metrics"):
        values: dict[str, float] = {}
        for name in sorted({name for step in ranks for name in step["logged"].get(kind, {})}):
            pairs = [step["logged"][kind][name] for step in ranks if name in step["logged"].get(kind, {})]
            value = value_of(pairs[0][2], [(total, weight) for total, weight, _ in pairs])
            values |= {} if value is None else {name: value}
        line |= {kind: values} if values else {}
    return line


def save(run: Any, job: Any, weights: Mapping[str, Any]) -> None:
    if run.rank == 0 and not run.config.trainer.barebones:
        states = [optimizer.state_dict() for optimizer in run.optimizers]
        content = {"plan": job.plan, "position": {"epochs": run.epoch, "batch": 0, "steps": run.steps}}
        checkpoint = {"epoch": run.epoch - 1, "global_step": run.trainer.global_step, "state_dict": weights}
        schedules = [each.scheduler.state_dict() for each in run.schedules]
        checkpoint |= {"optimizer_states": states, "lr_schedulers": schedules, "lockstep": content}
        path = Path(run.folder) / "checkpoints" / "last.ckpt"
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(checkpoint, path)


def results(run: Any, job: Any, weights: Mapping[str, Any]) -> dict[str, Any]:
    metrics = {
        **job.metadata,
        "parameters": sum(parameter.numel() for parameter in run.module.parameters()),
        "epochs": run.epoch,
        "steps": run.steps,
        "train_seconds": run.seconds,
        "samples_per_second": run.samples * run.world / run.seconds if run.seconds else 0.0,
    }
    return {**metrics, **run.values, **run.best, "digest": digest(weights)}


def update_best(run: Any, values: Mapping[str, float], epoch: int) -> None:
    """Note the best epoch by the value that is monitored, in float32; the first of equals is the best."""
    name = run.config.checkpoint.monitor
    candidates = (name,) if name else (getattr(run.module, "monitor", None), *LOSSES)
    name = next((each for each in candidates if each in values), None)
    if name is None:
        return
    value, mode = (
        torch.tensor(values[name], dtype=torch.float32).item(),
        run.config.checkpoint.mode or better(name),
    )
    bad = float("inf") if value != value else value if mode == "min" else -value
    best = run.best.get("best", float("inf") if mode == "min" else -float("inf"))
    if not run.best or bad < (best if mode == "min" else -best):
        run.best = {"monitor": name, "mode": mode, "best": -bad if mode == "max" else bad, "best_epoch": epoch}
