"""The random numbers of a sample are drawn under its seed; the generators of the process are preserved."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from lockstep.data.seeded import Seeded
from lockstep.random_state import seed_by

DRAWS: dict[str, Callable[[], float]] = {
    "torch": lambda: float(torch.rand(())),
    "numpy": np.random.random_sample,
    "gauss": lambda: float(np.random.normal()),
    "python": random.random,
    "read": lambda: float(torch.initial_seed()),  # draws nothing, but differs for each sample
}


class Drawn:
    """A data set of what a function draws."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self.draw = draw

    def __getitem__(self, index: int) -> float:
        return self.draw()


@pytest.mark.parametrize("name", DRAWS)
def test_each_sample_is_drawn_under_its_seed(name: str) -> None:
    """And what the collate function draws, under the seed of the last sample."""
    draw = DRAWS[name]

    def by_hand(index: int, numbers: int) -> list[float]:
        seed_by(3, 5, index)
        return [draw() for _ in range(numbers)]

    source = Seeded(Drawn(draw), lambda samples: [*samples, draw()], 3)
    assert source.__getitems__([(5, 4), (5, 7)]) == [*by_hand(4, 1), *by_hand(7, 2)]
    assert by_hand(4, 1) == by_hand(4, 1) != by_hand(7, 1)


@pytest.mark.parametrize("gauss", [False, True])
def test_the_generators_go_on_as_if_nothing_was_drawn(gauss: bool) -> None:
    """Also numpy's second number of a pair."""

    def numbers(fetch: Callable[[int], object]) -> list[float]:
        """Return numbers that the process draws between batches."""
        seed_by(1, 1, 1)
        values = [np.random.normal()] if gauss else []
        for batch in range(4):
            fetch(batch)
            values += [float(torch.rand(())), np.random.normal(), random.gauss(0, 1)]
        return values

    source = Seeded(Drawn(lambda: sum(draw() for draw in DRAWS.values())), list, 3)
    assert numbers(lambda batch: source.__getitems__([(5, 2 * batch), (5, 2 * batch + 1)])) == numbers(lambda _: None)
