"""Bytes from rank to rank, of any length. torch's own ways to send an object pickle it, and who unpickles runs code."""

import torch
import torch.distributed as dist
from torch import Tensor

Group = dist.ProcessGroup | None


def from_first(message: bytes) -> bytes:
    """Rank 0's, on every rank."""
    length = _tensor(len(message).to_bytes(8, "big"), None)
    dist.broadcast(length, src=0)
    count = int.from_bytes(_bytes(length), "big")
    sent = _tensor(message if dist.get_rank() == 0 else bytes(count), None)
    if count:
        dist.broadcast(sent, src=0)
    return _bytes(sent)


def to_first(message: bytes) -> list[bytes]:
    """Of all ranks, on rank 0; none elsewhere."""
    lengths, sent = _padded(message, None)
    taken = [torch.empty_like(sent) for _ in lengths] if dist.get_rank() == 0 else None
    dist.gather(sent, taken, dst=0)
    return [_bytes(one[:length]) for one, length in zip(taken or [], lengths, strict=False)]


def to_all(message: bytes, group: Group = None) -> list[bytes]:
    """Of all ranks, on every rank."""
    lengths, sent = _padded(message, group)
    taken = [torch.empty_like(sent) for _ in lengths]
    dist.all_gather(taken, sent, group=group)
    return [_bytes(one[:length]) for one, length in zip(taken, lengths, strict=True)]


def _padded(message: bytes, group: Group) -> tuple[list[int], Tensor]:
    """The lengths of all ranks' messages, and this one's as long as the longest, since tensors have to be alike."""
    own = _tensor(len(message).to_bytes(8, "big"), group)
    taken = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(taken, own, group=group)
    lengths = [int.from_bytes(_bytes(one), "big") for one in taken]
    return lengths, _tensor(message.ljust(max(1, *lengths), b"\0"), group)


def _tensor(message: bytes, group: Group) -> Tensor:
    """Where the group's backend takes it."""
    tensor = torch.frombuffer(bytearray(message), dtype=torch.uint8) if message else torch.empty(0, dtype=torch.uint8)
    return tensor.cuda() if dist.get_backend(group) == "nccl" else tensor


def _bytes(tensor: Tensor) -> bytes:
    return tensor.cpu().numpy().tobytes()
