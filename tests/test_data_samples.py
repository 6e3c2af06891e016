"""Samples of a Dataset are functions of (seed, epoch, sample), whatever the rank, worker or generator."""

import random

import numpy as np
import pytest
import torch
from lockstep.data.samples import Splits, as_batch, targets_for_loss
from lockstep.data.seeded import Seeded
from torch import Tensor
from torch.utils.data import Dataset

from lockstep.config_error import ConfigError
from lockstep.random_state import seed_by
from tests.split_loading import split_loader


def draw() -> list[float]:
    """Return numbers of each generator; a normal one is half of a pair."""
    return [float(torch.rand(())), random.random(), float(np.random.rand()), random.gauss(0, 1), np.random.normal()]


class Draws(Dataset[tuple[Tensor, int]]):
    """23 samples: their number, and what each generator draws."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.tensor([float(index), *draw()], dtype=torch.float64), index


def sample_data(workers: int = 0) -> Splits:
    return Splits(Draws(), Draws(), Draws(), {"num_workers": workers})


def batches(
    rank: int = 0, world: int = 1, workers: int = 0, epoch: int = 4, first: int = 0, seed: int = 9
) -> list[Tensor]:
    """Return the inputs of this rank's samples in each batch."""
    loader = split_loader(sample_data(workers), rank=rank, world=world, begin=(epoch, first), seed=seed)
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
    loader = split_loader(sample_data(), stage="val", shuffle=True)
    first = [inputs for inputs, _ in loader]
    loader.sampler.set_epoch(3)
    assert all(map(torch.equal, first, [inputs for inputs, _ in loader]))


def test_one_number_a_sample_is_a_column() -> None:
    """Else a squared error would compare each output with each target."""
    assert targets_for_loss(torch.zeros(5)).shape == (5, 1)
    assert targets_for_loss(torch.zeros(5, 2)).shape == (5, 2)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_integers_are_classes(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    classes = targets_for_loss(torch.ones(shape, dtype=dtype))
    assert (classes.dtype, classes.shape) == (torch.int64, (5,))


def test_a_mapping_without_keys_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"a batch of it is a mapping, .*; write data.inputs=KEY data.targets=KEY, of x"
    ):
        as_batch({"x": torch.zeros(4, 3)}, "pairs", torch.float32)
