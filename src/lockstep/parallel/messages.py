"""Collectives of bytes, sums and buffers.

Bytes are of any length: torch's collectives of objects pickle them, and unpickling can run any code.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn

Group = dist.ProcessGroup | None


def all_reduce_sums(sums: Tensor, device: torch.device) -> Tensor:
    """Add each sum over all ranks, in one message, by way of the rank's device, which nccl needs."""
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


def broadcast_bytes(message: bytes) -> bytes:
    """Rank 0's message, on every rank."""
    length = _tensor(len(message).to_bytes(8, "big"), None)
    dist.broadcast(length, src=0)
    count = int.from_bytes(_bytes(length), "big")
    sent = _tensor(message if dist.get_rank() == 0 else bytes(count), None)
    if count:
        dist.broadcast(sent, src=0)
    return _bytes(sent)


def gather_bytes(message: bytes) -> list[bytes]:
    """All ranks' messages, on rank 0; an empty list elsewhere."""
    lengths, sent = _padded(message, None)
    received = [torch.empty_like(sent) for _ in lengths] if dist.get_rank() == 0 else None
    dist.gather(sent, received, dst=0)
    return [_bytes(one[:length]) for one, length in zip(received or [], lengths, strict=False)]


def all_gather_bytes(message: bytes, group: Group = None) -> list[bytes]:
    """All ranks' messages, on every rank."""
    lengths, sent = _padded(message, group)
    received = [torch.empty_like(sent) for _ in lengths]
    dist.all_gather(received, sent, group=group)
    return [_bytes(one[:length]) for one, length in zip(received, lengths, strict=True)]


def _padded(message: bytes, group: Group) -> tuple[list[int], Tensor]:
    """The lengths of all ranks' messages, and this one's padded to the longest: a collective takes one shape."""
    own = _tensor(len(message).to_bytes(8, "big"), group)
    received = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(received, own, group=group)
    lengths = [int.from_bytes(_bytes(one), "big") for one in received]
    return lengths, _tensor(message.ljust(max(1, *lengths), b"\0"), group)


def _tensor(message: bytes, group: Group) -> Tensor:
    """On the device that the group's backend takes."""
    tensor = torch.frombuffer(bytearray(message), dtype=torch.uint8) if message else torch.empty(0, dtype=torch.uint8)
    return tensor.cuda() if dist.get_backend(group) == "nccl" else tensor


def _bytes(tensor: Tensor) -> bytes:
    return tensor.cpu().numpy().tobytes()
