"""Send and receive that compare sizes first: gloo ends the process where they differ, or where a rank does not exist.

Before the tensor goes its number of elements and its type, and the receiver answers; what does not fit is an error on
both ranks. That costs two short messages, so it is for learning and for finding faults, not for the inner loop.
"""

import torch
import torch.distributed as dist
from torch import Tensor

TYPES = sorted({kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}, key=str)
"""All that this torch has, in the same order on every rank."""


class Mismatch(ValueError):
    """A message that cannot be sent, or cannot be received as it is."""


def checked_send(tensor: Tensor, dst: int) -> None:
    check_peer("dst", dst)
    dist.send(header(tensor), dst)
    theirs = torch.empty_like(header(tensor))
    dist.recv(theirs, dst)
    agree(header(tensor), theirs, dist.get_rank(), dst)
    dist.send(tensor, dst)


def checked_recv(tensor: Tensor, src: int) -> None:
    check_peer("src", src)
    theirs = torch.empty_like(header(tensor))
    dist.recv(theirs, src)
    dist.send(header(tensor), src)
    agree(theirs, header(tensor), src, dist.get_rank())
    dist.recv(tensor, src)


def check_peer(key: str, rank: int) -> None:
    """Refuse a rank that does not exist, and this one."""
    world = dist.get_world_size()
    if not 0 <= rank < world:
        raise Mismatch(f"{key}={rank}: there is no such rank, only 0 to {world - 1}")
    if rank == dist.get_rank():
        raise Mismatch(f"{key}={rank}: this is rank {rank} itself")


def header(tensor: Tensor) -> Tensor:
    """How many numbers, and of which type."""
    return torch.tensor([tensor.numel(), TYPES.index(tensor.dtype)], device=tensor.device)


def agree(sent: Tensor, awaited: Tensor, sender: int, receiver: int) -> None:
    if not torch.equal(sent, awaited):
        raise Mismatch(f"rank {sender} sends {words(sent)} and rank {receiver} awaits {words(awaited)}")


def words(header: Tensor) -> str:
    """`4 numbers of float32`."""
    count, kind = header.tolist()
    return f"{count} number{'' if count == 1 else 's'} of {str(TYPES[kind]).removeprefix('torch.')}"
