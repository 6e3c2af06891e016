"""Collectives of bytes, sums and buffers.

Bytes may have any length. torch's collectives of objects pickle them, and unpickling can run any code.
"""

import json
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

Group = dist.ProcessGroup | None


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


def gather_bytes(message: bytes) -> list[bytes]:
    """Return all ranks' messages on rank 0, an empty list elsewhere."""
    lengths, padded = _padded(message, None)
    received = [torch.empty_like(padded) for _ in lengths] if dist.get_rank() == 0 else None
    dist.gather(padded, received, dst=0)
    return [_bytes(content[:length]) for content, length in zip(received or [], lengths, strict=False)]


def all_gather_bytes(message: bytes, group: Group = None) -> list[bytes]:
    """Return all ranks' messages, on every rank."""
    lengths, padded = _padded(message, group)
    return [content[:length] for content, length in zip(_all_gather(padded, group), lengths, strict=True)]


def all_gather_json(value: Any) -> list[Any]:
    """Return the plain values of all ranks, on every rank, or of this process alone without a process group."""
    if not dist.is_initialized():
        return [value]
    return [json.loads(message) for message in all_gather_bytes(json.dumps(value).encode())]


def _padded(message: bytes, group: Group) -> tuple[list[int], Tensor]:
    """Return the lengths of all ranks' messages, and this message padded to the longest."""
    length = _tensor(len(message).to_bytes(8, "big"), group)
    lengths = [int.from_bytes(content, "big") for content in _all_gather(length, group)]
    return lengths, _tensor(message.ljust(max(1, *lengths), b"\0"), group)


def _all_gather(tensor: Tensor, group: Group) -> list[bytes]:
    received = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(received, tensor, group=group)
    return [_bytes(content) for content in received]


def _tensor(message: bytes, group: Group) -> Tensor:
    """Return the bytes as a tensor on the device that the group's backend needs."""
    tensor = torch.frombuffer(bytearray(message), dtype=torch.uint8) if message else torch.empty(0, dtype=torch.uint8)
    return tensor.cuda() if dist.get_backend(group) == "nccl" else tensor


def _bytes(tensor: Tensor) -> bytes:
    return tensor.cpu().numpy().tobytes()
