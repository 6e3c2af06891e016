"""What the tour knows of a primitive: the call, the theory, the words, the cost in bytes, and the tensors it takes.

The cost is that of the busiest rank, which must send or receive so much whatever the algorithm: n is the bytes of the
whole tensor (of all parts together, where ranks hold parts) and W the number of ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from lockstep.collectives.theory import Held, Promised

Call = Callable[[Tensor, Tensor | None, int], None]
"""`given` is what the rank brings, `taken` where the result goes unless it replaces `given`; then the root."""


@dataclass(frozen=True)
class Cost:
    """Bytes moved per rank: `factor(W)` times n. Bus bandwidth is algorithm bandwidth times the same factor."""

    formula: str
    factor: Callable[[int], float]

    def bytes_moved(self, size: int, world: int) -> float:
        return self.factor(world) * size if world > 1 else 0.0


ONCE = Cost("n", lambda _world: 1.0)
ALL_BUT_OWN = Cost("(W-1)/W·n", lambda world: (world - 1) / world)
TWICE_ALL_BUT_OWN = Cost("2(W-1)/W·n", lambda world: 2 * (world - 1) / world)
NOTHING = Cost("0", lambda _world: 0.0)


def ten_and_up(rank: int, index: int) -> float:
    """10, -11, 12 … on rank 0, 20, -21, 22 … on rank 1: another number at each place of each rank."""
    return float((10 * (rank + 1) + index) * (-1) ** index)


@dataclass(frozen=True)
class Primitive:
    """`gives` and `takes`: the whole tensor, or a share of it, 1/W; where it takes none, the result replaces `given`.

    `first(rank, index)` is what a rank holds at first at place `index`. `timed` is what the benchmark calls where it
    is not `call`, and `trips` how many messages then follow one another.
    """

    name: str
    call: Call
    theory: Callable[[Held, int], Promised]
    does: str
    moves: str
    cost: Cost
    gives: Literal["whole", "share"] = "whole"
    takes: Literal["whole", "share", "none"] = "none"
    only_root: Literal["gives", "takes", "none"] = "none"
    numbers: Callable[[int], int] = lambda _world: 2
    first: Callable[[int, int], float] = ten_and_up
    fewest_ranks: int = 1
    timed: Call | None = None
    trips: int = 1

    def sizes(self, numbers: int, rank: int, world: int, root: int) -> tuple[int, int | None]:
        """How many numbers `rank` gives and takes, where the whole tensor has so many."""
        of = {"whole": numbers, "share": numbers // world}
        gives = 0 if self.only_root == "gives" and rank != root else of[self.gives]
        takes = None if self.only_root == "takes" and rank != root else of.get(self.takes)
        return gives, takes

    def whole(self, numbers: int, world: int) -> int:
        """So many numbers, or as few more as can be cut into equal shares."""
        return -(-numbers // world) * world if self.cost is ALL_BUT_OWN else numbers

    def explain(self, size: int, world: int) -> str:
        """One sentence: what it does, and what it costs."""
        if self.cost is NOTHING:
            return f"{self.does}; {self.moves}."
        moved = self.cost.bytes_moved(size, world)
        return f"{self.does}; {self.moves} {self.cost.formula} bytes, here {moved:.4g} (n = {size}, W = {world})."
