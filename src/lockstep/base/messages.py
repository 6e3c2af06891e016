"""Collectives of bytes, sums and buffers: torch's own of objects pickle them, and unpickling can run any code."""

import io
import json
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.base.config_error import ConfigError
from lockstep.base.safe_loading import load

MISMATCH = (
    "Ranks call different collectives: call each on every rank, in the same order, and self.all_gather in an evaluation"
    " only if each rank has samples of its last batch; write another batch_size."
)


def all_reduce_sums(sums: Tensor, device: torch.device) -> Tensor:
    """Return the sums over all ranks, by one message through the rank's device, which nccl needs."""
    if not dist.is_initialized():
        return sums
    summed = sums.to(device, copy=True)
    dist.all_reduce(summed)
    return summed.cpu()


def broadcast(buffers: Iterable[Tensor | None]) -> None:
    """Give every rank the buffers of rank 0."""
    if dist.is_initialized():
        for buffer in buffers:
            if buffer is not None:
                dist.broadcast(buffer, src=0)


def gather_values(value: Any, to_all: bool = False) -> list[Any]:
    """Return the tensors and plain values of all ranks, on every rank if `to_all`; see `gather_bytes`."""
    message = io.BytesIO()
    torch.save(value, message)
    return [load(io.BytesIO(received)) for received in gather_bytes(message.getvalue(), to_all)]


def all_gather_json(value: Any) -> list[Any]:
    """Return the plain values of all ranks, on every rank, or of this process alone without a process group."""
    if not dist.is_initialized():
        return [value]
    values = [json.loads(message) for message in gather_bytes(json.dumps(value).encode(), to_all=True)]
    if len({*map(type, values)}) > 1:
        raise ConfigError(MISMATCH)
    return values


def gather_bytes(message: bytes, to_all: bool = False) -> list[bytes]:
    """Return all ranks' messages on rank 0, on every rank, or in a single process; an empty list elsewhere."""
    if not dist.is_initialized():
        return [message]
    lengths = [int(length) for length in all_gather_tensor(torch.tensor(len(message)))]
    padded = torch.frombuffer(bytearray(message.ljust(max(1, *lengths), b"\0")), dtype=torch.uint8).to(group_device())
    if to_all:
        received = all_gather_tensor(padded)
    else:
        received = [torch.empty_like(padded) for _ in lengths] if dist.get_rank() == 0 else []
        dist.gather(padded, received or None, dst=0)
    return [tensor.cpu().numpy().tobytes()[:length] for tensor, length in zip(received, lengths, strict=False)]


def all_gather_tensor(tensor: Tensor) -> list[Tensor]:
    """Return the tensors of all ranks, which have one shape, on every rank, on the device of the group."""
    tensor = tensor.to(group_device())
    received = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(received, tensor)
    return received


def group_device() -> str:
    """Return the device of tensors that the group sends."""
    return "cuda" if dist.get_backend() == "nccl" else "cpu"
