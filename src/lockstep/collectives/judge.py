"""What every rank held after each primitive, against what it must hold: a row for each rank."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from lockstep.collectives.bench import BYTES
from lockstep.collectives.entry import Primitive
from lockstep.collectives.ranks import Seen, broken

CLOSE = 1e-6
"""How far, relatively, float32 may be from Python's float64: a mean may be a product with 1/W."""

COLUMNS = ("primitive", "rank", "before", "after", "theory", "explain")


@dataclass(frozen=True)
class Row:
    """`theory` is holds, fails, or – where nothing came that could be judged."""

    primitive: str
    rank: int
    before: str
    after: str
    theory: str
    explain: str

    def cells(self) -> dict[str, str]:
        return dict(zip(COLUMNS, map(str, astuple(self)), strict=True))


def rows(
    primitives: Sequence[Primitive], seen: Mapping[str, Sequence[Seen]], world: int, root: int, backend: str
) -> list[Row]:
    """All rows of the tour; `seen` ends with a primitive that broke the group."""
    table: list[Row] = []
    for primitive in primitives:
        if primitive.fewest_ranks > world:
            table += unseen(primitive.name, world, f"it needs {primitive.fewest_ranks} ranks, and there is one")
        elif primitive.name in seen:
            table += judged(primitive, seen[primitive.name], root, backend)
        else:
            last = list(seen)[-1]
            table += unseen(primitive.name, world, f"not tried: {last} had broken the group")
    return table


def unseen(name: str, world: int, why: str) -> list[Row]:
    return [Row(name, rank, "–", "–", "–", why) for rank in range(world)]


def judged(primitive: Primitive, ranks: Sequence[Seen], root: int, backend: str) -> list[Row]:
    """The rows of one primitive. What all ranks were refused, the backend cannot do; what some were, has failed."""
    errors = {rank: " ".join(one.error.split()) for rank, one in enumerate(ranks) if one.error}
    if errors:
        says = "; ".join(f"rank {rank}: {error}" for rank, error in errors.items())
        theory = "fails" if broken(ranks) else "–"
        explain = says if broken(ranks) else f"{backend}: {errors[0]}"
        return [
            Row(primitive.name, rank, shown(one.before), shown(one.after), theory, explain)
            for rank, one in enumerate(ranks)
        ]
    promised = primitive.theory([one.before for one in ranks], root)
    explain = primitive.explain(BYTES * primitive.numbers(len(ranks)), len(ranks))
    return [
        Row(primitive.name, rank, shown(one.before), shown(one.after), verdict(one.after, numbers), explain)
        for rank, (one, numbers) in enumerate(zip(ranks, promised, strict=True))
    ]


def verdict(after: Sequence[float], promised: Sequence[float] | None) -> str:
    """– for a rank that is promised nothing: it holds what it may."""
    if promised is None:
        return "–"
    same = len(after) == len(promised) and all(
        math.isclose(ours, theirs, rel_tol=CLOSE) for ours, theirs in zip(after, promised, strict=True)
    )
    return "holds" if same else "fails"


def shown(numbers: Sequence[float]) -> str:
    """10, -11, 2.5: short, and enough to tell ranks apart."""
    return " ".join(f"{number:g}" for number in numbers) or "–"
