"""The primitives of torch.distributed, in the order in which to learn them: one table for runs, checks and timings.

An entry: name and call; what ranks must hold afterwards, given what all held `before`; what it does and costs; which
tensors it takes. Calls of more than a line are in calls.py.

The cost is what the busiest rank must send or receive whatever the algorithm: n is the bytes of the full tensor (of all
shares together), W the number of ranks.
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
"""Takes the rank's input, its output (the input itself if the result replaces it), and the root."""
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
    """Return 10, -11, 12 … for rank 0, 20, -21, 22 … for rank 1: another number at each index of each rank."""
    return float((10 * (rank + 1) + index) * (-1) ** index)


@dataclass(frozen=True)
class Primitive:
    """Input and output are the `full` tensor or a `share` of it, 1/W; without an output the input is replaced.

    `expected(before, root)` is what each rank must hold afterwards (None: anything). With `only_root`, only the root
    has an input, or an output. On the tour the full tensor holds `size` numbers (for shares: W times as many), and
    `initial(rank, index)` is each of them. The benchmark calls `timed` instead of `call` if it is set; its `trips`
    messages go one after the other.
    """

    name: str
    call: Call
    expected: Callable[[Sequence[Sequence[float]], int], Sequence[Numbers | None]]
    does: str
    cost: Cost
    input: Literal["full", "share"] = "full"
    output: Literal["full", "share", "none"] = "none"
    only_root: Literal["input", "output", "none"] = "none"
    size: int = 2
    initial: Callable[[int, int], float] = distinct_number
    min_ranks: int = 1
    timed: Call | None = None
    trips: int = 1

    def count(self, world: int) -> int:
        """Return how many numbers the full tensor holds on the tour."""
        return self.size * world if self.cost is ALL_BUT_OWN else self.size

    def sizes(self, count: int, rank: int, world: int, root: int) -> tuple[int, int | None]:
        """Return how many numbers the input and the output of `rank` hold if the full tensor holds `count`."""
        numbers = {"full": count, "share": count // world}
        inputs = 0 if self.only_root == "input" and rank != root else numbers[self.input]
        outputs = None if self.only_root == "output" and rank != root else numbers.get(self.output)
        return inputs, outputs

    def divisible(self, count: int, world: int) -> int:
        """Round `count` up so that it splits into equal shares, if there are shares."""
        return -(-count // world) * world if self.cost is ALL_BUT_OWN else count

    def explain(self, size: int, world: int) -> str:
        """Return a sentence on what it does and costs, for a tensor of `size` bytes."""
        if self.cost is NOTHING:
            return f"{self.does}."
        moved = f"{self.cost.formula} bytes, here {self.cost.factor(world) * size:.4g} (n = {size}, W = {world})"
        return f"{self.does}; the busiest rank moves {moved}."


def all_reduce(op: Any, does: str, reduce: Callable[..., Numbers]) -> Primitive:
    return Primitive(
        f"all-reduce ({op.name.lower()})", lambda input, _output, _root: dist.all_reduce(input, op=op),
        lambda before, _root: [reduce(before, axis=0)] * len(before),
        does, TWICE_ALL_BUT_OWN,
    )  # fmt: skip


PRIMITIVES = (
    Primitive(
        "send/recv", calls.send_recv,
        lambda before, _root: [[before[0][0] + 1], [before[0][0] + 1], *before[2:]],
        "rank 0 adds 1 to a zero and sends it to rank 1, and both block until it is done",
        ONCE, initial=lambda _rank, _index: 0.0, size=1, min_ranks=2, timed=calls.ping_pong, trips=2,
    ),
    Primitive(
        "isend/irecv", calls.isend_irecv,
        lambda before, _root: [before[1], before[0], *before[2:]],
        "ranks 0 and 1 swap; both directions are in flight at once until wait()",
        ONCE, output="full", min_ranks=2,
    ),
    Primitive(
        "batched isend/irecv", calls.batched,
        lambda before, _root: [before[-1], *before[:-1]],
        "every rank sends to its right and receives from its left, posted as one batch, so that no order deadlocks",
        ONCE, output="full", min_ranks=2,
    ),
    Primitive(
        "broadcast", lambda input, _output, root: dist.broadcast(input, src=root),
        lambda before, root: [before[root]] * len(before),
        "the root's tensor replaces everyone's",
        ONCE,
    ),
    Primitive(
        "reduce", lambda input, _output, root: dist.reduce(input, dst=root, op=ReduceOp.SUM),
        lambda before, root: [np.sum(before, axis=0) if rank == root else None for rank in range(len(before))],
        "the root gets the sum over ranks; what the others hold afterwards is undefined",
        ONCE,
    ),
    all_reduce(ReduceOp.SUM, "every rank gets the sum over ranks, as gradients do", np.sum),
    all_reduce(ReduceOp.MAX, "every rank gets the largest number at each index", np.max),
    all_reduce(ReduceOp.AVG, "every rank gets the mean over ranks", np.mean),
    Primitive(
        "ring all-reduce", lambda input, _output, _root: ring_all_reduce(input),
        lambda before, _root: [np.sum(before, axis=0)] * len(before),
        "Lockstep's own all-reduce, in 2(W-1) steps from neighbour to neighbour, gives the sum too",
        TWICE_ALL_BUT_OWN, size=5,
    ),
    Primitive(
        "gather", calls.gather,
        lambda before, root: [np.concatenate(before) if rank == root else share for rank, share in enumerate(before)],
        "the root gets the shares of all ranks, concatenated, and the others keep theirs",
        ALL_BUT_OWN, input="share", output="full", only_root="output",
    ),
    Primitive(
        "all-gather", lambda input, output, _root: dist.all_gather_into_tensor(output, input),
        lambda before, _root: [np.concatenate(before)] * len(before),
        "every rank gets the shares of all ranks, concatenated",
        ALL_BUT_OWN, input="share", output="full",
    ),
    Primitive(
        "scatter", calls.scatter,
        lambda before, root: np.split(np.asarray(before[root]), len(before)),
        "the root's tensor is split, and rank r gets share r",
        ALL_BUT_OWN, output="share", only_root="input",
    ),
    Primitive(
        "reduce-scatter", lambda input, output, _root: dist.reduce_scatter_tensor(output, input, op=ReduceOp.SUM),
        lambda before, _root: np.split(np.sum(before, axis=0), len(before)),
        "rank r gets share r of the sum over ranks: the first half of a ring all-reduce",
        ALL_BUT_OWN, output="share",
    ),
    Primitive(
        "all-to-all", lambda input, output, _root: dist.all_to_all_single(output, input),
        lambda before, _root: np.hstack([np.reshape(shares, (len(before), -1)) for shares in before]).tolist(),
        "rank r gets share r of every rank, as a matrix is transposed",
        ALL_BUT_OWN, output="full",
    ),
    Primitive(
        "barrier", calls.counted_barrier,
        lambda before, _root: [[len(before)]] * len(before),
        "no rank leaves before all have arrived (before: the seconds that it comes late; after: how many had arrived "
        "when it left); it costs the wait for the slowest rank, and no bytes",
        NOTHING, initial=lambda rank, _index: calls.DELAY * rank, size=1, timed=calls.barrier,
    ),
)  # fmt: skip
