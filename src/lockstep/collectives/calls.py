"""The calls of primitives that take more than a line: every rank makes the same call, or the others wait for it.

`input` is what the rank sends, `output` receives the result (the same tensor if the result replaces the input).
"""

import time

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.private_api.torch import default_store

DELAY = 0.05
"""Seconds by which each rank arrives at the barrier after the one before it."""


def send_recv(input: Tensor, output: Tensor, root: int) -> None:
    """Blocking: `send` returns when the tensor may be changed again, `recv` when the message has arrived."""
    if dist.get_rank() == 0:
        input += 1
        dist.send(input, dst=1)
    elif dist.get_rank() == 1:
        dist.recv(input, src=0)


def ping_pong(input: Tensor, output: Tensor, root: int) -> None:
    """Send a message there and back, so that one clock times both."""
    if dist.get_rank() == 0:
        dist.send(input, dst=1)
        dist.recv(input, src=1)
    elif dist.get_rank() == 1:
        dist.recv(input, src=0)
        dist.send(input, dst=0)


def isend_irecv(input: Tensor, output: Tensor, root: int) -> None:
    """Both calls return at once; until `wait`, a rank must neither change `input` nor read `output`."""
    rank = dist.get_rank()
    if rank > 1:
        output.copy_(input)
        return
    for transfer in (dist.isend(input, dst=1 - rank), dist.irecv(output, src=1 - rank)):
        assert transfer is not None
        transfer.wait()


def batched(input: Tensor, output: Tensor, root: int) -> None:
    """All transfers of a rank are posted together, so that their order cannot deadlock."""
    rank, world = dist.get_rank(), dist.get_world_size()
    right = dist.P2POp(dist.isend, input, (rank + 1) % world)
    left = dist.P2POp(dist.irecv, output, (rank - 1) % world)
    for transfer in dist.batch_isend_irecv([right, left]):
        transfer.wait()


def gather(input: Tensor, output: Tensor, root: int) -> None:
    """Only the root passes a list for the shares: views of its output."""
    dist.gather(input, list(output.chunk(dist.get_world_size())) if dist.get_rank() == root else None, dst=root)


def scatter(input: Tensor, output: Tensor, root: int) -> None:
    """Only the root passes a list of shares."""
    dist.scatter(output, list(input.chunk(dist.get_world_size())) if dist.get_rank() == root else None, src=root)


def counted_barrier(input: Tensor, output: Tensor, root: int) -> None:
    """Arrive late, count the arrival in the group's store, wait at the barrier, and read the count."""
    store = default_store()
    time.sleep(input.item())
    store.add("collectives/barrier", 1)
    barrier(input, output, root)
    input.fill_(store.add("collectives/barrier", 0))


def barrier(input: Tensor, output: Tensor, root: int) -> None:
    """Name the GPU for nccl, whose barrier is an all-reduce on it."""
    dist.barrier(device_ids=[torch.cuda.current_device()] if dist.get_backend() == "nccl" else None)


def tensor_device() -> torch.device:
    """Return the GPU for nccl, which passes no other tensors, and the CPU for gloo and mpi."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
