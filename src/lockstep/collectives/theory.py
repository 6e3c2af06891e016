"""What every rank must hold after a primitive: plain Python on what all ranks held before, no torch, no network.

Each takes the ranks' numbers before (`held[r]` is rank r's) and the root, and returns the ranks' numbers after. None
for a rank means that nothing is promised about what it holds.
"""

from collections.abc import Sequence

Numbers = Sequence[float]
Held = Sequence[Numbers]
Promised = Sequence[Numbers | None]


def one_more_from_the_first(held: Held, root: int) -> Promised:
    """Rank 0 adds 1 and sends; rank 1 receives; nobody else takes part."""
    sent = [number + 1 for number in held[0]]
    return [sent, sent, *held[2:]]


def first_two_swapped(held: Held, root: int) -> Promised:
    return [held[1], held[0], *held[2:]]


def from_the_left(held: Held, root: int) -> Promised:
    """Rank r holds what rank r-1 held; rank 0 what the last one held."""
    return [held[rank - 1] for rank in range(len(held))]


def of_the_root(held: Held, root: int) -> Promised:
    return [held[root] for _ in held]


def sums(held: Held) -> Numbers:
    return [sum(column) for column in zip(*held, strict=True)]


def sum_at_the_root(held: Held, root: int) -> Promised:
    return [sums(held) if rank == root else None for rank in range(len(held))]


def sum_everywhere(held: Held, root: int) -> Promised:
    return [sums(held) for _ in held]


def largest_everywhere(held: Held, root: int) -> Promised:
    return [[max(column) for column in zip(*held, strict=True)] for _ in held]


def mean_everywhere(held: Held, root: int) -> Promised:
    return [[total / len(held) for total in sums(held)] for _ in held]


def in_a_row(held: Held) -> Numbers:
    return [number for one in held for number in one]


def row_at_the_root(held: Held, root: int) -> Promised:
    """The others keep what they gave."""
    return [in_a_row(held) if rank == root else numbers for rank, numbers in enumerate(held)]


def row_everywhere(held: Held, root: int) -> Promised:
    return [in_a_row(held) for _ in held]


def cut(numbers: Numbers, parts: int) -> list[Numbers]:
    size = len(numbers) // parts
    return [numbers[part * size : (part + 1) * size] for part in range(parts)]


def parts_of_the_root(held: Held, root: int) -> Promised:
    return cut(held[root], len(held))


def parts_of_the_sum(held: Held, root: int) -> Promised:
    return cut(sums(held), len(held))


def transposed(held: Held, root: int) -> Promised:
    """Rank r gets part r of every rank, in the order of the ranks."""
    cuts = [cut(numbers, len(held)) for numbers in held]
    return [in_a_row([parts[rank] for parts in cuts]) for rank in range(len(held))]


def all_have_come(held: Held, root: int) -> Promised:
    """Whoever leaves a barrier has seen every rank arrive."""
    return [[len(held)] for _ in held]
