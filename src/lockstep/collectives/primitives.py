"""The primitives of torch.distributed, in the order in which to learn them: one table that drives everything.

An entry each: name and call; what ranks must hold afterwards, given what all `held` before; what it does; what it moves
and how much; which tensors it takes. Calls of more than a line are in calls.py.

The cost is that of the busiest rank, which must send or receive so much whatever the algorithm: n is the bytes of the
whole tensor (of all shares together, where ranks hold shares) and W the number of ranks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ReduceOp

from lockstep.collectives import calls
from lockstep.parallel.reduce import ring_all_reduce

Call = Callable[[Tensor, Tensor, int], object]
"""Takes the rank's input, its output (the input itself where the result replaces it), and the root."""
Numbers = Sequence[float] | np.ndarray[Any, Any]


@dataclass(frozen=True)
class Cost:
    """Bytes moved per rank: `factor(W)` times n. Bus bandwidth is algorithm bandwidth times the same factor."""

    formula: str
    factor: Callable[[int], float]


ONCE = Cost("n", lambda world: float(world > 1))
ALL_BUT_OWN = Cost("(W-1)/W·n", lambda world: (world - 1) / world)
TWICE_ALL_BUT_OWN = Cost("2(W-1)/W·n", lambda world: 2 * (world - 1) / world)
NOTHING = Cost("0", lambda _world: 0.0)


def distinct_number(rank: int, index: int) -> float:
    """10, -11, 12 … on rank 0, 20, -21, 22 … on rank 1: another number at each index of each rank."""
    return float((10 * (rank + 1) + index) * (-1) ** index)


@dataclass(frozen=True)
class Primitive:
    """Input and output are the `whole` tensor or a `share` of it, 1/W; without an output the input is replaced.

    `expected(held, root)`, of what all ranks held before, is what each must hold afterwards (None: anything).
    `only_root`: only the root has an input, or an output. `count(W)` is the size of the whole tensor on the tour, and
    `initial(rank, index)` what it holds. `timed` is called by the benchmark where it isn't `call`, and has `trips`
    messages, one after the other.
    """

    name: str
    call: Call
    expected: Callable[[Sequence[Sequence[float]], int], Sequence[Numbers | None]]
    does: str
    moves: str
    cost: Cost
    input: Literal["whole", "share"] = "whole"
    output: Literal["whole", "share", "none"] = "none"
    only_root: Literal["input", "output", "none"] = "none"
    count: Callable[[int], int] = lambda _world: 2
    initial: Callable[[int, int], float] = distinct_number
    min_ranks: int = 1
    timed: Call | None = None
    trips: int = 1

    def sizes(self, count: int, rank: int, world: int, root: int) -> tuple[int, int | None]:
        """How many numbers the input and the output of `rank` hold, where the whole tensor holds `count`."""
        of = {"whole": count, "share": count // world}
        inputs = 0 if self.only_root == "input" and rank != root else of[self.input]
        outputs = None if self.only_root == "output" and rank != root else of.get(self.output)
        return inputs, outputs

    def divisible(self, count: int, world: int) -> int:
        """So many numbers, or as few more as split into equal shares."""
        return -(-count // world) * world if self.cost is ALL_BUT_OWN else count

    def explain(self, size: int, world: int) -> str:
        """One sentence: what it does, and what it costs."""
        if self.cost is NOTHING:
            return f"{self.does}; {self.moves}."
        moved = self.cost.factor(world) * size
        return f"{self.does}; {self.moves} {self.cost.formula} bytes, here {moved:.4g} (n = {size}, W = {world})."


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
