"""Random numbers of a sample: its own, whenever its data set begins to draw; the process's own go on untouched."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from lockstep import random_state
from lockstep.data.seeded import Seeded, seed_sample
from lockstep.private_api import numpy as private_numpy

DRAWS: dict[str, Callable[[], float]] = {
    "torch": lambda: float(torch.rand(())),
    "numpy": np.random.random_sample,
    "gauss": lambda: float(np.random.normal()),
    "python": random.random,
    "read": lambda: float(torch.initial_seed()),  # draws nothing, and is another for each sample all the same
}


class Late:
    """Samples below `first` draw nothing. `asked`: which were made, in turn."""

    def __init__(self, draw: Callable[[], float], first: int) -> None:
        self.draw, self.first = draw, first
        self.asked: list[int] = []

    def __getitem__(self, index: int) -> float:
        self.asked.append(index)
        return -1.0 if index < self.first else self.draw()


def wanted(draw: Callable[[], float], index: int) -> float:
    """By hand."""
    seed_sample(3, 5, index)
    return draw()


def places(*indices: int) -> list[tuple[int, int]]:
    return [(5, index) for index in indices]


@pytest.mark.parametrize("first", [0, 2, 5], ids=["first", "first-batch", "second-batch"])
@pytest.mark.parametrize("name", DRAWS)
def test_a_late_draw_has_its_own_seed(name: str, first: int) -> None:
    """In batches of 4; a draw that is seen late has the batch made anew."""
    source = Seeded(Late(DRAWS[name], first), list, 3)
    made = source.__getitems__(places(0, 1, 2, 3)) + source.__getitems__(places(4, 5, 6, 7))
    assert made == [-1.0 if index < first else wanted(DRAWS[name], index) for index in range(8)]
    assert len({*made[first:]}) == 8 - first


@pytest.mark.parametrize("name", ["numpy", "python"])
def test_samples_are_made_once(name: str) -> None:
    """Whether each draws or none: a data set that keeps what it has made would keep what was drawn without a seed."""
    drawing, still = Late(DRAWS[name], 0), Late(DRAWS[name], 99)
    for data in (drawing, still):
        source = Seeded(data, list, 3)
        source.__getitems__(places(0, 1, 2))
        source.__getitems__(places(3, 4))
        assert data.asked == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", DRAWS)
def test_what_a_collate_function_draws_is_the_batchs(name: str) -> None:
    """Under the numbers of its last sample, whatever was drawn before."""
    source = Seeded(Late(DRAWS[name], 99), lambda _: DRAWS[name](), 3)
    DRAWS[name]()
    assert source.__getitems__(places(0, 1)) == wanted(DRAWS[name], 1)
    assert source.__getitems__(places(2, 6)) == wanted(DRAWS[name], 6)


@pytest.mark.parametrize("memory", [True, False], ids=["memory", "without"])
@pytest.mark.parametrize("gauss", [False, True])
@pytest.mark.parametrize("first", [0, 3, 99])
def test_the_generators_go_on_as_if_nothing_was_drawn(
    first: int, gauss: bool, memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also numpy's second number of a pair; and where numpy's memory cannot be read."""
    if not memory:
        monkeypatch.setattr(random_state, "generator_memory", lambda: None)

    def all_of_them() -> float:
        return sum(draw() for draw in DRAWS.values())

    def numbers(batches: int) -> list[float]:
        seed_sample(1, 1, 1)
        source = Seeded(Late(all_of_them, first), list, 3)
        found = [np.random.normal()] if gauss else []
        for batch in range(batches):
            source.__getitems__(places(*range(2 * batch, 2 * batch + 2)))
            found += [float(torch.rand(())), np.random.normal(), random.gauss(0, 1)]
        return found

    with_batches = numbers(4)
    seed_sample(1, 1, 1)
    alone = [np.random.normal()] if gauss else []
    for _ in range(4):
        alone += [float(torch.rand(())), np.random.normal(), random.gauss(0, 1)]
    assert with_batches == alone


def test_numpys_memory_tells_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this version of numpy; in one without these names nothing is told."""
    np.random.seed(4)
    before = private_numpy.generator_memory()
    assert before is not None
    assert before[:-4] == np.random.get_state(legacy=False)["state"]["key"].tobytes()
    assert private_numpy.generator_memory() == before
    np.random.random_sample()
    assert private_numpy.generator_memory() != before
    monkeypatch.delattr(np.random, "get_bit_generator")
    assert private_numpy.generator_memory() is None
