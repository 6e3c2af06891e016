"""The primitives of torch.distributed, in the order in which to learn them: an entry each.

Every rank makes the same call at the same moment, or the others wait; only its rank and the root tell what it does.
"""

import time

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.collectives import theory
from lockstep.collectives.entry import ALL_BUT_OWN, NOTHING, ONCE, TWICE_ALL_BUT_OWN, Primitive
from lockstep.raw.reduce import ring_all_reduce

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


PRIMITIVES = (
    Primitive(
        "send/recv", send_recv, theory.one_more_from_the_first,
        "rank 0 adds 1 to a zero and sends it to rank 1, and both wait until it is done",
        "the two move", ONCE,
        first=lambda _rank, _index: 0.0, numbers=lambda _world: 1, fewest_ranks=2, timed=ping_pong, trips=2,
    ),
    Primitive(
        "isend/irecv", isend_irecv, theory.first_two_swapped,
        "ranks 0 and 1 swap, both directions under way at once until wait()",
        "each of the two sends and receives", ONCE,
        takes="whole", fewest_ranks=2,
    ),
    Primitive(
        "batched isend/irecv", batched, theory.from_the_left,
        "every rank sends to its right and receives from its left, posted as one batch, so that no order deadlocks",
        "each rank sends and receives", ONCE,
        takes="whole", fewest_ranks=2,
    ),
    Primitive(
        "broadcast", broadcast, theory.of_the_root,
        "the root's tensor replaces everyone's",
        "every other rank receives", ONCE,
    ),
    Primitive(
        "reduce", reduce, theory.sum_at_the_root,
        "the root gets the sum over ranks, and what the others hold then is scratch",
        "every other rank sends", ONCE,
    ),
    Primitive(
        "all-reduce (sum)", all_reduce_sum, theory.sum_everywhere,
        "every rank gets the sum over ranks, as gradients do",
        "each rank sends and receives", TWICE_ALL_BUT_OWN,
        numbers=lambda world: world,
    ),
    Primitive(
        "all-reduce (max)", all_reduce_max, theory.largest_everywhere,
        "every rank gets the largest number at each place",
        "each rank sends and receives", TWICE_ALL_BUT_OWN,
        numbers=lambda world: world,
    ),
    Primitive(
        "all-reduce (avg)", all_reduce_avg, theory.mean_everywhere,
        "every rank gets the mean over ranks",
        "each rank sends and receives", TWICE_ALL_BUT_OWN,
        numbers=lambda world: world,
    ),
    Primitive(
        "ring all-reduce", ring, theory.sum_everywhere,
        "Lockstep's own all-reduce, in 2(W-1) steps from neighbour to neighbour, gives the sum too",
        "each rank sends and receives", TWICE_ALL_BUT_OWN,
        numbers=lambda world: world + 1,
    ),
    Primitive(
        "gather", gather, theory.row_at_the_root,
        "the root gets the shares of all ranks in a row",
        "it receives all but its own,", ALL_BUT_OWN,
        gives="share", takes="whole", only_root="takes", numbers=lambda world: 2 * world,
    ),
    Primitive(
        "all-gather", all_gather, theory.row_everywhere,
        "every rank gets the shares of all ranks in a row",
        "each receives all but its own,", ALL_BUT_OWN,
        gives="share", takes="whole", numbers=lambda world: 2 * world,
    ),
    Primitive(
        "scatter", scatter, theory.parts_of_the_root,
        "the root's tensor is cut, and rank r gets share r",
        "the root sends all but its own,", ALL_BUT_OWN,
        takes="share", only_root="gives", numbers=lambda world: 2 * world,
    ),
    Primitive(
        "reduce-scatter", reduce_scatter, theory.parts_of_the_sum,
        "rank r gets share r of the sum over ranks: the first half of a ring all-reduce",
        "each rank sends and receives", ALL_BUT_OWN,
        takes="share", numbers=lambda world: 2 * world,
    ),
    Primitive(
        "all-to-all", all_to_all, theory.transposed,
        "rank r gets share r of every rank, as a matrix is transposed",
        "each rank sends and receives all but its own,", ALL_BUT_OWN,
        gives="whole", takes="whole", numbers=lambda world: 2 * world,
    ),
    Primitive(
        "barrier", barrier_seen, theory.all_have_come,
        "no rank leaves before all have come (before: by how many seconds it comes late; after: how many had come "
        "when it left)",
        "it costs the wait for the slowest, and no bytes", NOTHING,
        first=lambda rank, _index: LATER * rank, numbers=lambda _world: 1, timed=barrier,
    ),
)  # fmt: skip
