"""Collectives of bytes, sums and buffers.

Bytes may have any length. torch's collectives of objects pickle them, and unpickling can run any code.
"""

import io
import json
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep.config_error import ConfigError
from lockstep.safe_loading import load

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


def broadcast_buffers(net: nn.Module) -> None:
    """Give every rank the buffers of rank 0 (BatchNorm's running statistics), so that all evaluate the saved net."""
    if dist.is_initialized():
        for buffer in net.buffers():
            dist.broadcast(buffer, src=0)


def gather_values(value: Any) -> list[Any]:
    """Return what all ranks pass, in tensors and plain values, on rank 0, or in a single process; nothing elsewhere."""
    message = io.BytesIO()
    torch.save(value, message)
    return [load(io.BytesIO(received)) for received in gather_bytes(message.getvalue())]


def gather_json(value: Any) -> list[Any]:
    """Return the plain values of all ranks on rank 0, or of this process alone without a process group."""
    if not dist.is_initialized():
        return [value]
    return [json.loads(message) for message in gather_bytes(json.dumps(value).encode())]


def gather_bytes(message: bytes) -> list[bytes]:
    """Return all ranks' messages on rank 0, or in a single process; an empty list elsewhere."""
    if not dist.is_initialized():
        return [message]
    lengths, padded = _padded(message)
    received = [torch.empty_like(padded) for _ in lengths] if dist.get_rank() == 0 else None
    dist.gather(padded, received, dst=0)
    return [_bytes(tensor, length) for tensor, length in zip(received or [], lengths, strict=False)]


def all_gather_bytes(message: bytes) -> list[bytes]:
    """Return all ranks' messages, on every rank."""
    lengths, padded = _padded(message)
    return [_bytes(tensor, length) for tensor, length in zip(_all_gather(padded), lengths, strict=True)]


def all_gather_json(value: Any) -> list[Any]:
    """Return the plain values of all ranks, on every rank, or of this process alone without a process group."""
    if not dist.is_initialized():
        return [value]
    values = [json.loads(message) for message in all_gather_bytes(json.dumps(value).encode())]
    if len({*map(type, values)}) > 1:
        raise ConfigError(MISMATCH)
    return values


def all_gather_tensor(tensor: Tensor) -> list[Tensor]:
    """Return the tensors of all ranks, which have one shape, on every rank, on the device of the group."""
    return _all_gather(tensor.to("cuda" if dist.get_backend() == "nccl" else "cpu"))


def _padded(message: bytes) -> tuple[list[int], Tensor]:
    """Return the lengths of all ranks' messages, and this one, padded to the longest, on the device of the group."""
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    lengths = [int(length) for length in _all_gather(torch.tensor(len(message), device=device))]
    padded = bytearray(message.ljust(max(1, *lengths), b"\0"))
    return lengths, torch.frombuffer(padded, dtype=torch.uint8).to(device)


def _all_gather(tensor: Tensor) -> list[Tensor]:
    received = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(received, tensor)
    return received


def _bytes(tensor: Tensor, length: int) -> bytes:
    return tensor.cpu().numpy().tobytes()[:length]
