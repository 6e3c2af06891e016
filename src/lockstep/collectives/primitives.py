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
from lockstep.raw.average import ring_sum

Numbers = Sequence[float] | np.ndarray[Any, Any]
ONCE, ALL_BUT_OWN, TWICE_ALL_BUT_OWN, NOTHING = "n", "(W-1)/W·n", "2(W-1)/W·n", "no"
"""The bytes that the busiest rank must send or receive, whatever the algorithm: n is the size of the full tensor (of
all shares together), W the number of ranks."""


@dataclass(frozen=True)
class Primitive:
    """A primitive; `expected(before, root)` is what ranks must hold afterwards, by `before` (W, …); None: anything.

    Input and output are the `full` tensor or a `share` of it, 1/W; without an output the input is replaced.
    """

    name: str
    call: Callable[[Tensor, Tensor, int], object]
    expected: Callable[[np.ndarray[Any, Any], int], Sequence[Numbers | None]]
    does: str
    cost: str
    input: Literal["full", "share"] = "full"
    output: Literal["full", "share", "none"] = "none"


def send_recv(input: Tensor, output: Tensor, root: int) -> None:
    """`send` returns when the tensor may be changed again, `recv` when the message has arrived."""
    if dist.get_rank() == 0:
        dist.send(input, dst=1)
    elif dist.get_rank() == 1:
        dist.recv(input, src=0)


def around_the_ring(input: Tensor, output: Tensor) -> list[dist.P2POp]:
    """Return the two transfers of a rank; until `wait` it may neither change `input` nor read `output`."""
    rank, world = dist.get_rank(), dist.get_world_size()
    return [dist.P2POp(dist.isend, input, (rank + 1) % world), dist.P2POp(dist.irecv, output, (rank - 1) % world)]


def isend_irecv(input: Tensor, output: Tensor, root: int) -> None:
    for transfer in [each.op(each.tensor, each.peer) for each in around_the_ring(input, output)]:
        transfer.wait()  # type: ignore[union-attr]


def batched(input: Tensor, output: Tensor, root: int) -> None:
    for transfer in dist.batch_isend_irecv(around_the_ring(input, output)):
        transfer.wait()


def of_root(tensor: Tensor, root: int) -> list[Tensor] | None:
    """Return the shares of a tensor, as views: the root alone passes such a list."""
    return list(tensor.chunk(dist.get_world_size())) if dist.get_rank() == root else None


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
        lambda before, _: [reduce(before, axis=0)] * len(before), does, TWICE_ALL_BUT_OWN,
    )  # fmt: skip


PRIMITIVES = (
    Primitive(
        "send/recv", send_recv, lambda before, _: [before[0], before[0], *before[2:]],
        "rank 0 sends its tensor to rank 1, and both block until it is done", ONCE,
    ),
    Primitive(
        "isend/irecv", isend_irecv, lambda before, _: [before[-1], *before[:-1]],
        "every rank sends to its right and receives from its left; both are in flight at once until wait()",
        ONCE, output="full",
    ),
    Primitive(
        "batched isend/irecv", batched, lambda before, _: [before[-1], *before[:-1]],
        "the same, posted as one batch, so that no order deadlocks", ONCE, output="full",
    ),
    Primitive(
        "broadcast", lambda input, _output, root: dist.broadcast(input, src=root),
        lambda before, root: [before[root]] * len(before), "the root's tensor replaces everyone's", ONCE,
    ),
    Primitive(
        "reduce", lambda input, _output, root: dist.reduce(input, dst=root, op=ReduceOp.SUM),
        lambda before, root: [before.sum(0) if rank == root else None for rank in range(len(before))],
        "the root gets the sum over ranks; what the others hold afterwards is undefined", ONCE,
    ),
    all_reduce(ReduceOp.SUM, "every rank gets the sum over ranks, as gradients do", np.sum),
    all_reduce(ReduceOp.MAX, "every rank gets the largest number at each index", np.max),
    all_reduce(ReduceOp.AVG, "every rank gets the mean over ranks", np.mean),
    Primitive(
        "ring all-reduce", lambda input, _output, _root: ring_sum(input.view(-1)),
        lambda before, _: [before.sum(0)] * len(before),
        "Lockstep's own all-reduce, in 2(W-1) steps from neighbour to neighbour, gives the sum too", TWICE_ALL_BUT_OWN,
    ),
    Primitive(
        "gather", lambda input, output, root: dist.gather(input, of_root(output, root), dst=root),
        lambda before, root: [before.ravel() if rank == root else None for rank in range(len(before))],
        "the root gets the shares of all ranks, concatenated, and the others get nothing",
        ALL_BUT_OWN, input="share", output="full",
    ),
    Primitive(
        "all-gather", lambda input, output, _root: all_gather_single(output, input),
        lambda before, _: [before.ravel()] * len(before),
        "every rank gets the shares of all ranks, concatenated", ALL_BUT_OWN, input="share", output="full",
    ),
    Primitive(
        "scatter", lambda input, output, root: dist.scatter(output, of_root(input, root), src=root),
        lambda before, root: np.split(before[root], len(before)),
        "the root's tensor is split, and rank r gets share r", ALL_BUT_OWN, output="share",
    ),
    Primitive(
        "reduce-scatter", lambda input, output, _root: reduce_scatter_single(output, input, op=ReduceOp.SUM),
        lambda before, _: np.split(before.sum(0), len(before)),
        "rank r gets share r of the sum over ranks: the first half of a ring all-reduce", ALL_BUT_OWN, output="share",
    ),
    Primitive(
        "all-to-all", lambda input, output, _root: dist.all_to_all_single(output, input),
        lambda before, _: [np.ravel(shares) for shares in np.split(before, len(before), axis=1)],
        "rank r gets share r of every rank, as a matrix is transposed", ALL_BUT_OWN, output="full",
    ),
    Primitive(
        "barrier", counted_barrier, lambda before, _: [np.full(before.shape[1], len(before))] * len(before),
        "no rank leaves before all have arrived, here rank r after r·50 ms (after: how many had arrived when it left)",
        NOTHING,
    ),
)  # fmt: skip
