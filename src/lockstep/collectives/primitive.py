"""What the tour knows of a primitive: its call, what must come of it, its cost in bytes, and the tensors it takes.

The cost is that of the busiest rank, which must send or receive so much whatever the algorithm: n is the bytes of the
whole tensor (of all parts together, where ranks hold parts) and W the number of ranks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

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
