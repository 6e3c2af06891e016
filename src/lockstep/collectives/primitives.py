"""The primitives of torch.distributed, in the order in which to learn them: an entry each.

Its name, the call, the theory; then what it does, what it moves and how much, and which tensors it takes.
"""

from lockstep.collectives import calls, theory
from lockstep.collectives.entry import ALL_BUT_OWN, NOTHING, ONCE, TWICE_ALL_BUT_OWN, Primitive

PRIMITIVES = (
    Primitive(
        "send/recv", calls.send_recv, theory.one_more_from_the_first,
        "rank 0 adds 1 to a zero and sends it to rank 1, and both wait until it is done",
        "the two move", ONCE,
        first=lambda _rank, _index: 0.0, numbers=lambda _world: 1, fewest_ranks=2, timed=calls.ping_pong, trips=2,
    ),
    Primitive(
        "isend/irecv", calls.isend_irecv, theory.first_two_swapped,
        "ranks 0 and 1 swap, both directions under way at once until wait()",
        "each of the two sends and receives", ONCE,
        takes="whole", fewest_ranks=2,
    ),
    Primitive(
        "batched isend/irecv", calls.batched, theory.from_the_left,
        "every rank sends to its right and receives from its left, posted as one batch, so that no order deadlocks",
        "each rank sends and receives", ONCE,
        takes="whole", fewest_ranks=2,
    ),
    Primitive(
        "broadcast", calls.broadcast, theory.of_the_root,
        "the root's tensor replaces everyone's",
        "every other rank receives", ONCE,
    ),
    Primitive(
        "reduce", calls.reduce, theory.sum_at_the_root,
        "the root gets the sum over ranks, and what the others hold then is scratch",
        "every other rank sends", ONCE,
    ),
    Primitive(
        "all-reduce (sum)", calls.all_reduce_sum, theory.sum_everywhere,
        "every rank gets the sum over ranks, as gradients do",
        "each rank sends and receives", TWICE_ALL_BUT_OWN,
        numbers=lambda world: world,
    ),
    Primitive(
        "all-reduce (max)", calls.all_reduce_max, theory.largest_everywhere,
        "every rank gets the largest number at each place",
        "each rank sends and receives", TWICE_ALL_BUT_OWN,
        numbers=lambda world: world,
    ),
    Primitive(
        "all-reduce (avg)", calls.all_reduce_avg, theory.mean_everywhere,
        "every rank gets the mean over ranks",
        "each rank sends and receives", TWICE_ALL_BUT_OWN,
        numbers=lambda world: world,
    ),
    Primitive(
        "ring all-reduce", calls.ring, theory.sum_everywhere,
        "Lockstep's own all-reduce, in 2(W-1) steps from neighbour to neighbour, gives the sum too",
        "each rank sends and receives", TWICE_ALL_BUT_OWN,
        numbers=lambda world: world + 1,
    ),
    Primitive(
        "gather", calls.gather, theory.row_at_the_root,
        "the root gets the shares of all ranks in a row",
        "it receives all but its own,", ALL_BUT_OWN,
        gives="share", takes="whole", only_root="takes", numbers=lambda world: 2 * world,
    ),
    Primitive(
        "all-gather", calls.all_gather, theory.row_everywhere,
        "every rank gets the shares of all ranks in a row",
        "each receives all but its own,", ALL_BUT_OWN,
        gives="share", takes="whole", numbers=lambda world: 2 * world,
    ),
    Primitive(
        "scatter", calls.scatter, theory.parts_of_the_root,
        "the root's tensor is cut, and rank r gets share r",
        "the root sends all but its own,", ALL_BUT_OWN,
        takes="share", only_root="gives", numbers=lambda world: 2 * world,
    ),
    Primitive(
        "reduce-scatter", calls.reduce_scatter, theory.parts_of_the_sum,
        "rank r gets share r of the sum over ranks: the first half of a ring all-reduce",
        "each rank sends and receives", ALL_BUT_OWN,
        takes="share", numbers=lambda world: 2 * world,
    ),
    Primitive(
        "all-to-all", calls.all_to_all, theory.transposed,
        "rank r gets share r of every rank, as a matrix is transposed",
        "each rank sends and receives all but its own,", ALL_BUT_OWN,
        gives="whole", takes="whole", numbers=lambda world: 2 * world,
    ),
    Primitive(
        "barrier", calls.barrier_seen, theory.all_have_come,
        "no rank leaves before all have come (before: by how many seconds it comes late; after: how many had come "
        "when it left)",
        "it costs the wait for the slowest, and no bytes", NOTHING,
        first=lambda rank, _index: calls.LATER * rank, numbers=lambda _world: 1, timed=calls.barrier,
    ),
)  # fmt: skip
