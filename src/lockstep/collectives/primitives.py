"""The primitives of torch.distributed, in the order in which to learn them: one table for runs and checks.

Each is called with `input`, which the rank sends, `output`, which receives the result (the same tensor if the result
replaces the input), and the root. Every rank makes the same call, or the others wait for it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ReduceOp

from lockstep.base.private_api.torch import all_gather_single, default_store, reduce_scatter_single
from lockstep.raw.step import ring_sum

Numbers = Sequence[float] | np.ndarray[Any, Any]
ONCE, ALL_BUT_OWN, TWICE_ALL_BUT_OWN, NOTHING = "n", "(W-1)/W·n", "2(W-1)/W·n", "no"
"""The bytes that the busiest rank must send or receive, whatever the algorithm: n is the size of the full tensor (of
all shares together), W the number of ranks."""


@dataclass(frozen=True)
class Primitive:
    """A primitive of torch.distributed; `expected(before, root)` is what ranks must hold afterwards (None: anything).

    Input and output are the `full` tensor or a `share` of it, 1/W; without an output the input is replaced.
    """

    name: str
    call: Callable[[Tensor, Tensor, int], object]
    expected: Callable[[Sequence[Sequence[float]], int], Sequence[Numbers | None]]
    does: str
    cost: str
    input: Literal["full", "share"] = "full"
    output: Literal["full", "share", "none"] = "none"


def tensor_device() -> torch.device:
    """Return the GPU for nccl, which passes no other tensors, and the CPU for gloo and mpi."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def send_recv(input: Tensor, output: Tensor, root: int) -> None:
    """`send` returns when the tensor may be changed again, `recv` when the message has arrived."""
    if dist.get_rank() == 0:
        dist.send(input, dst=1)
    elif dist.get_rank() == 1:
        dist.recv(input, src=0)


def isend_irecv(input: Tensor, output: Tensor, root: int) -> None:
    """Pass tensors around the ring; until `wait` a rank may neither change `input` nor read `output`."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for transfer in (dist.isend(input, dst=(rank + 1) % world), dist.irecv(output, src=(rank - 1) % world)):
        transfer.wait()  # type: ignore[union-attr]


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
    """Arrive 50 ms after the rank before, count it in the group's store, wait at the barrier, and read the count."""
    store = default_store()
    time.sleep(0.05 * dist.get_rank())
    store.add("collectives/barrier", 1)
    # nccl's barrier is an all-reduce on a GPU
    dist.barrier(device_ids=[torch.cuda.current_device()] if dist.get_backend() == "nccl" else None)
    input.fill_(store.add("collectives/barrier", 0))


def all_reduce(op: Any, does: str, reduce: Callable[..., Numbers]) -> Primitive:
    return Primitive(
        f"all-reduce ({op.name.lower()})", lambda input, _output, _root: dist.all_reduce(input, op=op),
        lambda before, _root: [reduce(before, axis=0)] * len(before),
        does, TWICE_ALL_BUT_OWN,
    )  # fmt: skip


PRIMITIVES = (
    Primitive(
        "send/recv", send_recv,
        lambda before, _root: [before[0], before[0], *before[2:]],
        "rank 0 sends its tensor to rank 1, and both block until it is done", ONCE,
    ),
    Primitive(
        "isend/irecv", isend_irecv,
        lambda before, _root: [before[-1], *before[:-1]],
        "every rank sends to its right and receives from its left; both are in flight at once until wait()",
        ONCE, output="full",
    ),
    Primitive(
        "batched isend/irecv", batched,
        lambda before, _root: [before[-1], *before[:-1]],
        "the same, posted as one batch, so that no order deadlocks", ONCE, output="full",
    ),
    Primitive(
        "broadcast", lambda input, _output, root: dist.broadcast(input, src=root),
        lambda before, root: [before[root]] * len(before),
        "the root's tensor replaces everyone's", ONCE,
    ),
    Primitive(
        "reduce", lambda input, _output, root: dist.reduce(input, dst=root, op=ReduceOp.SUM),
        lambda before, root: [np.sum(before, axis=0) if rank == root else None for rank in range(len(before))],
        "the root gets the sum over ranks; what the others hold afterwards is undefined", ONCE,
    ),
    all_reduce(ReduceOp.SUM, "every rank gets the sum over ranks, as gradients do", np.sum),
    all_reduce(ReduceOp.MAX, "every rank gets the largest number at each index", np.max),
    all_reduce(ReduceOp.AVG, "every rank gets the mean over ranks", np.mean),
    Primitive(
        "ring all-reduce", lambda input, _output, _root: ring_sum(input.view(-1)),
        lambda before, _root: [np.sum(before, axis=0)] * len(before),
        "Lockstep's own all-reduce, in 2(W-1) steps from neighbour to neighbour, gives the sum too", TWICE_ALL_BUT_OWN,
    ),
    Primitive(
        "gather", gather,
        lambda before, root: [np.concatenate(before) if rank == root else None for rank in range(len(before))],
        "the root gets the shares of all ranks, concatenated, and the others get nothing",
        ALL_BUT_OWN, input="share", output="full",
    ),
    Primitive(
        "all-gather", lambda input, output, _root: all_gather_single(output, input),
        lambda before, _root: [np.concatenate(before)] * len(before),
        "every rank gets the shares of all ranks, concatenated", ALL_BUT_OWN, input="share", output="full",
    ),
    Primitive(
        "scatter", scatter,
        lambda before, root: np.split(np.asarray(before[root]), len(before)),
        "the root's tensor is split, and rank r gets share r", ALL_BUT_OWN, output="share",
    ),
    Primitive(
        "reduce-scatter", lambda input, output, _root: reduce_scatter_single(output, input, op=ReduceOp.SUM),
        lambda before, _root: np.split(np.sum(before, axis=0), len(before)),
        "rank r gets share r of the sum over ranks: the first half of a ring all-reduce", ALL_BUT_OWN, output="share",
    ),
    Primitive(
        "all-to-all", lambda input, output, _root: dist.all_to_all_single(output, input),
        lambda before, _root: np.hstack([np.reshape(shares, (len(before), -1)) for shares in before]).tolist(),
        "rank r gets share r of every rank, as a matrix is transposed", ALL_BUT_OWN, output="full",
    ),
    Primitive(
        "barrier", counted_barrier,
        lambda before, _root: [np.full(len(before[0]), len(before))] * len(before),
        "no rank leaves before all have arrived, here rank r after r·50 ms (after: how many had arrived when it left)",
        NOTHING,
    ),
)  # fmt: skip
