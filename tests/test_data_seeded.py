"""The random numbers of a sample: seeded whenever its data set begins to draw; the process's are preserved."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from lockstep.data.seeded import Seeded, seed_sample

DRAWS: dict[str, Callable[[], float]] = {
    "torch": lambda: float(torch.rand(())),
    "numpy": np.random.random_sample,
    "gauss": lambda: float(np.random.normal()),
    "python": random.random,
    "read": lambda: float(torch.initial_seed()),  # draws nothing, but differs for each sample
}


class Late:
    """Samples below `first` draw nothing."""

    def __init__(self, draw: Callable[[], float], first: int) -> None:
        self.draw, self.first = draw, first
        self.requested: list[int] = []

    def __getitem__(self, index: int) -> float:
        self.requested.append(index)
        return -1.0 if index < self.first else self.draw()


def seeded_draw(draw: Callable[[], float], index: int) -> float:
    """Draw by hand under the seed of a sample."""
    seed_sample(3, 5, index)
    return draw()


def places(*indices: int) -> list[tuple[int, int]]:
    return [(5, index) for index in indices]


@pytest.mark.parametrize("first", [0, 2, 5], ids=["first", "first-batch", "second-batch"])
@pytest.mark.parametrize("name", DRAWS)
def test_a_late_draw_has_its_own_seed(name: str, first: int) -> None:
    """In batches of 4; a batch is made again if a draw is noticed late."""
    source = Seeded(Late(DRAWS[name], first), list, 3)
    samples = source.__getitems__(places(0, 1, 2, 3)) + source.__getitems__(places(4, 5, 6, 7))
    assert samples == [-1.0 if index < first else seeded_draw(DRAWS[name], index) for index in range(8)]
    assert len({*samples[first:]}) == 8 - first


@pytest.mark.parametrize("name", ["numpy", "python"])
@pytest.mark.parametrize("first", [0, 99])
def test_samples_are_made_once(name: str, first: int) -> None:
    """Whether each draws or none: a data set that caches samples would keep what was drawn without a seed."""
    data = Late(DRAWS[name], first)
    source = Seeded(data, list, 3)
    source.__getitems__(places(0, 1, 2))
    source.__getitems__(places(3, 4))
    assert data.requested == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", DRAWS)
def test_a_collate_function_draws_under_the_seed_of_the_last_sample(name: str) -> None:
    source = Seeded(Late(DRAWS[name], 99), lambda _: DRAWS[name](), 3)
    DRAWS[name]()
    assert source.__getitems__(places(0, 1)) == seeded_draw(DRAWS[name], 1)
    assert source.__getitems__(places(2, 6)) == seeded_draw(DRAWS[name], 6)


@pytest.mark.parametrize("gauss", [False, True])
@pytest.mark.parametrize("first", [0, 3, 99])
def test_the_generators_go_on_as_if_nothing_was_drawn(first: int, gauss: bool) -> None:
    """Also numpy's second number of a pair."""

    def numbers(fetch: Callable[[int], object]) -> list[float]:
        """Return numbers that the process draws between batches."""
        seed_sample(1, 1, 1)
        values = [np.random.normal()] if gauss else []
        for batch in range(4):
            fetch(batch)
            values += [float(torch.rand(())), np.random.normal(), random.gauss(0, 1)]
        return values

    source = Seeded(Late(lambda: sum(draw() for draw in DRAWS.values()), first), list, 3)
    assert numbers(lambda batch: source.__getitems__(places(2 * batch, 2 * batch + 1))) == numbers(lambda _: None)
