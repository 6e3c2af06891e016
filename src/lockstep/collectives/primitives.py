"""The primitives of torch.distributed, in the order in which to learn them.

An entry each: name and call; what ranks must hold afterwards, of what all `held` before; what it does; what it moves
and how much; which tensors it takes. Calls of more than a line are in calls.py.
"""

import numpy as np
import torch.distributed as dist
from torch.distributed import ReduceOp

from lockstep.collectives import calls
from lockstep.collectives.primitive import ALL_BUT_OWN, NOTHING, ONCE, TWICE_ALL_BUT_OWN, Primitive
from lockstep.parallel.reduce import ring_all_reduce

PRIMITIVES = (
    Primitive(
        "send/recv", calls.send_recv,
        lambda held, _root: [[held[0][0] + 1], [held[0][0] + 1], *held[2:]],
        "rank 0 adds 1 to a zero and sends it to rank 1, and both block until it is done",
        "the two move", ONCE,
        initial=lambda _rank, _index: 0.0, count=lambda _world: 1, min_ranks=2, timed=calls.ping_pong, trips=2,
    ),
    Primitive(
        "isend/irecv", calls.isend_irecv,
        lambda held, _root: [held[1], held[0], *held[2:]],
        "ranks 0 and 1 swap; both directions are in flight at once until wait()",
        "each of the two sends and receives", ONCE,
        output="whole", min_ranks=2,
    ),
    Primitive(
        "batched isend/irecv", calls.batched,
        lambda held, _root: [held[-1], *held[:-1]],
        "every rank sends to its right and receives from its left, posted as one batch, so that no order deadlocks",
        "each rank sends and receives", ONCE,
        output="whole", min_ranks=2,
    ),
    Primitive(
        "broadcast", lambda input, _output, root: dist.broadcast(input, src=root),
        lambda held, root: [held[root]] * len(held),
        "the root's tensor replaces everyone's",
        "every other rank receives", ONCE,
    ),
    Primitive(
        "reduce", lambda input, _output, root: dist.reduce(input, dst=root, op=ReduceOp.SUM),
        lambda held, root: [np.sum(held, axis=0) if rank == root else None for rank in range(len(held))],
        "the root gets the sum over ranks; what the others hold afterwards is undefined",
        "every other rank sends", ONCE,
    ),
    Primitive(
        "all-reduce (sum)", lambda input, _output, _root: dist.all_reduce(input, op=ReduceOp.SUM),
        lambda held, _root: [np.sum(held, axis=0)] * len(held),
        "every rank gets the sum over ranks, as gradients do",
        "each rank sends and receives", TWICE_ALL_BUT_OWN,
        count=lambda world: world,
    ),
    Primitive(
        "all-reduce (max)", lambda input, _output, _root: dist.all_reduce(input, op=ReduceOp.MAX),
        lambda held, _root: [np.max(held, axis=0)] * len(held),
        "every rank gets the largest number at each index",
        "each rank sends and receives", TWICE_ALL_BUT_OWN,
        count=lambda world: world,
    ),
    Primitive(
        "all-reduce (avg)", lambda input, _output, _root: dist.all_reduce(input, op=ReduceOp.AVG),
        lambda held, _root: [np.mean(held, axis=0)] * len(held),
        "every rank gets the mean over ranks",
        "each rank sends and receives", TWICE_ALL_BUT_OWN,
        count=lambda world: world,
    ),
    Primitive(
        "ring all-reduce", lambda input, _output, _root: ring_all_reduce(input),
        lambda held, _root: [np.sum(held, axis=0)] * len(held),
        "Lockstep's own all-reduce, in 2(W-1) steps from neighbour to neighbour, gives the sum too",
        "each rank sends and receives", TWICE_ALL_BUT_OWN,
        count=lambda world: world + 1,
    ),
    Primitive(
        "gather", calls.gather,
        lambda held, root: [np.concatenate(held) if rank == root else own for rank, own in enumerate(held)],
        "the root gets the shares of all ranks, concatenated, and the others keep theirs",
        "it receives all but its own,", ALL_BUT_OWN,
        input="share", output="whole", only_root="output", count=lambda world: 2 * world,
    ),
    Primitive(
        "all-gather", lambda input, output, _root: dist.all_gather_into_tensor(output, input),
        lambda held, _root: [np.concatenate(held)] * len(held),
        "every rank gets the shares of all ranks, concatenated",
        "each receives all but its own,", ALL_BUT_OWN,
        input="share", output="whole", count=lambda world: 2 * world,
    ),
    Primitive(
        "scatter", calls.scatter,
        lambda held, root: np.split(np.asarray(held[root]), len(held)),
        "the root's tensor is split, and rank r gets share r",
        "the root sends all but its own,", ALL_BUT_OWN,
        output="share", only_root="input", count=lambda world: 2 * world,
    ),
    Primitive(
        "reduce-scatter", lambda input, output, _root: dist.reduce_scatter_tensor(output, input, op=ReduceOp.SUM),
        lambda held, _root: np.split(np.sum(held, axis=0), len(held)),
        "rank r gets share r of the sum over ranks: the first half of a ring all-reduce",
        "each rank sends and receives", ALL_BUT_OWN,
        output="share", count=lambda world: 2 * world,
    ),
    Primitive(
        "all-to-all", lambda input, output, _root: dist.all_to_all_single(output, input),
        lambda held, _root: np.hstack([np.reshape(own, (len(held), -1)) for own in held]).tolist(),
        "rank r gets share r of every rank, as a matrix is transposed",
        "each rank sends and receives all but its own,", ALL_BUT_OWN,
        output="whole", count=lambda world: 2 * world,
    ),
    Primitive(
        "barrier", calls.counted_barrier,
        lambda held, _root: [[len(held)]] * len(held),
        "no rank leaves before all have arrived (before: the seconds that it comes late; after: how many had arrived "
        "when it left)",
        "it costs the wait for the slowest rank, and no bytes", NOTHING,
        initial=lambda rank, _index: calls.DELAY * rank, count=lambda _world: 1, timed=calls.barrier,
    ),
)  # fmt: skip
