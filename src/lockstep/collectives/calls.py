"""How each primitive is called: every rank makes the same call at the same moment, or the others wait for it.

`given` is what the rank brings, `taken` where the result goes unless it replaces `given`. Only its rank and the root
tell a rank what its part is.
"""

import time

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.parallel.reduce import ring_all_reduce

LATER = 0.05
"""Seconds that each rank comes later to the barrier than the one before it."""


def send_recv(given: Tensor, taken: Tensor | None, root: int) -> None:
    """Blocking: `send` returns when the tensor may be changed again, `recv` when it has come."""
    if dist.get_rank() == 0:
        given += 1
        dist.send(given, dst=1)
    elif dist.get_rank() == 1:
        dist.recv(given, src=0)


def ping_pong(given: Tensor, taken: Tensor | None, root: int) -> None:
    """There and back: two messages, one after the other, timed on one clock."""
    if dist.get_rank() == 0:
        dist.send(given, dst=1)
        dist.recv(given, src=1)
    elif dist.get_rank() == 1:
        dist.recv(given, src=0)
        dist.send(given, dst=0)


def isend_irecv(given: Tensor, taken: Tensor | None, root: int) -> None:
    """Both return at once: until `wait`, a rank may compute, but neither change `given` nor read `taken`."""
    assert taken is not None
    if dist.get_rank() == 0:
        going, coming = dist.isend(given, dst=1), dist.irecv(taken, src=1)
    elif dist.get_rank() == 1:
        coming, going = dist.irecv(taken, src=0), dist.isend(given, dst=0)
    else:
        taken.copy_(given)
        return
    for transfer in (going, coming):
        assert transfer is not None
        transfer.wait()


def batched(given: Tensor, taken: Tensor | None, root: int) -> None:
    """All transfers of a rank are handed over together, so their order cannot make ranks wait in a circle."""
    assert taken is not None
    rank, world = dist.get_rank(), dist.get_world_size()
    right = dist.P2POp(dist.isend, given, (rank + 1) % world)
    left = dist.P2POp(dist.irecv, taken, (rank - 1) % world)
    for transfer in dist.batch_isend_irecv([right, left]):
        transfer.wait()


def broadcast(given: Tensor, taken: Tensor | None, root: int) -> None:
    dist.broadcast(given, src=root)


def reduce(given: Tensor, taken: Tensor | None, root: int) -> None:
    dist.reduce(given, dst=root, op=dist.ReduceOp.SUM)


def all_reduce_sum(given: Tensor, taken: Tensor | None, root: int) -> None:
    dist.all_reduce(given, op=dist.ReduceOp.SUM)


def all_reduce_max(given: Tensor, taken: Tensor | None, root: int) -> None:
    dist.all_reduce(given, op=dist.ReduceOp.MAX)


def all_reduce_avg(given: Tensor, taken: Tensor | None, root: int) -> None:
    dist.all_reduce(given, op=dist.ReduceOp.AVG)


def ring(given: Tensor, taken: Tensor | None, root: int) -> None:
    ring_all_reduce(given)


def gather(given: Tensor, taken: Tensor | None, root: int) -> None:
    """Only the root has a list to take the shares; here it is the result, cut."""
    dist.gather(given, None if taken is None else list(taken.chunk(dist.get_world_size())), dst=root)


def all_gather(given: Tensor, taken: Tensor | None, root: int) -> None:
    assert taken is not None
    dist.all_gather_into_tensor(taken, given)


def scatter(given: Tensor, taken: Tensor | None, root: int) -> None:
    """Only the root has a list of shares to give."""
    assert taken is not None
    shares = list(given.chunk(dist.get_world_size())) if dist.get_rank() == root else None
    dist.scatter(taken, shares, src=root)


def reduce_scatter(given: Tensor, taken: Tensor | None, root: int) -> None:
    assert taken is not None
    dist.reduce_scatter_tensor(taken, given, op=dist.ReduceOp.SUM)


def all_to_all(given: Tensor, taken: Tensor | None, root: int) -> None:
    assert taken is not None
    dist.all_to_all_single(taken, given)


def barrier_seen(given: Tensor, taken: Tensor | None, root: int) -> None:
    """Come late, count oneself in at the group's store, wait at the barrier, and look who had come by then."""
    store = dist.distributed_c10d._get_default_store()
    time.sleep(given.item())
    store.add("collectives/barrier", 1)
    barrier()
    given.fill_(store.add("collectives/barrier", 0))


def barrier(given: Tensor | None = None, taken: Tensor | None = None, root: int = 0) -> None:
    """nccl's barrier is an all-reduce on the GPU, and wants to be told which."""
    dist.barrier(device_ids=[torch.cuda.current_device()] if dist.get_backend() == "nccl" else None)


def own_device() -> torch.device:
    """nccl passes GPU tensors only; gloo and mpi get tensors of the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
