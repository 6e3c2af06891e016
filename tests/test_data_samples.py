"""Samples of a Dataset are functions of (seed, epoch, sample), whatever the rank, worker or generator."""

import random

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lockstep.base.random_state import seed_by
from lockstep.datamodules.datasets import targets_for_loss
from lockstep.engine.loaders import RankSlice
from lockstep.engine.loaders.map_loader import MapLoader
from lockstep.engine.loaders.seeded import Seeded


def draw() -> list[float]:
    """Return numbers of each generator; a normal one is half of a pair."""
    return [float(torch.rand(())), random.random(), float(np.random.rand()), random.gauss(0, 1), np.random.normal()]


class Draws(Dataset[tuple[Tensor, int]]):
    """23 samples: their number, and what each generator draws."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.tensor([float(index), *draw()], dtype=torch.float64), index


def draws_loader(
    rank: int = 0,
    world: int = 1,
    workers: int = 0,
    begin: tuple[int, int] = (0, 0),
    seed: int = 9,
    training: bool = True,
) -> MapLoader:
    """Return a loader in the epoch and at the batch where training begins."""
    user_loader = DataLoader(Draws(), batch_size=7, shuffle=True, num_workers=workers)
    loader = MapLoader(user_loader, RankSlice(rank, world), seed, training, None)
    loader.begin = begin
    loader.set_epoch(begin[0])
    return loader


def batches(
    rank: int = 0, world: int = 1, workers: int = 0, epoch: int = 4, first: int = 0, seed: int = 9
) -> list[Tensor]:
    """Return the inputs of this rank's samples in each batch."""
    loader = draws_loader(rank, world, workers, (epoch, first), seed)
    rank_inputs = []
    for inputs, targets in loader:
        share = loader.shares.popleft()
        assert torch.equal(inputs[: share.count, 0].long(), share.ids)
        assert torch.equal(targets[: share.count], share.ids)
        rank_inputs.append(inputs[: share.count])
    return rank_inputs


def drawn(batches: list[Tensor]) -> dict[int, list[float]]:
    """Return the numbers that each sample has drawn."""
    return {int(row[0]): row[1:].tolist() for batch in batches for row in batch}


def test_a_sample_is_drawn_under_its_seed() -> None:
    """By hand, with each generator."""
    seed_by(9, 4, 17)
    expected = draw()
    assert drawn(batches())[17] == expected
    assert len({tuple(values) for values in drawn(batches()).values()}) == 23
    assert drawn(batches(epoch=5))[17] != expected
    assert drawn(batches(seed=8))[17] != expected


def test_a_collate_function_draws_under_the_seed_of_the_last_sample() -> None:
    numbers = Seeded(Draws(), lambda _: draw(), 9).__getitems__([(4, 3), (4, 17)])
    seed_by(9, 4, 17)
    assert [draw(), draw()][1] == numbers, "the sample's, and then its own"


@pytest.mark.parametrize("workers", [0, 2])
def test_neither_ranks_nor_workers_nor_a_resume_change_a_sample(workers: int) -> None:
    """Three ranks, of which the last has nothing of the ragged batch. Their generators are preserved."""
    seed_by(5, 0, 0)
    first, second = draw(), draw()
    seed_by(5, 0, 0)
    assert draw() == first
    single = batches()
    ranks = [batches(rank, 3, workers) for rank in range(3)]
    assert [len(rank[-1]) for rank in ranks] == [1, 1, 0]
    for number, batch in enumerate(single):
        assert all(torch.equal(ranks[rank][number], batch[rank::3]) for rank in range(3))
    resumed = batches(workers=workers, first=2)
    assert len(resumed) == 2
    assert all(map(torch.equal, resumed, single[2:]))
    assert draw() == second


def test_an_evaluation_is_the_same_in_each_epoch() -> None:
    """In the order of epoch 0 if its loader shuffles. Lightning sets the epoch of its sampler too."""
    loader = draws_loader(training=False)
    first = [inputs for inputs, _ in loader]
    loader.sampler.set_epoch(3)
    assert all(map(torch.equal, first, [inputs for inputs, _ in loader]))


def test_one_number_a_sample_is_a_column() -> None:
    """Else a squared error would compare each output with each target."""
    assert targets_for_loss(torch.zeros(5)).shape == (5, 1)
    assert targets_for_loss(torch.zeros(5, 2)).shape == (5, 2)


@pytest.mark.parametrize(("dtype", "shape"), [(torch.int32, (5,)), (torch.bool, (5, 1))])
def test_integers_are_classes(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    classes = targets_for_loss(torch.ones(shape, dtype=dtype))
    assert (classes.dtype, classes.shape) == (torch.int64, (5,))
