"""Samples of a Dataset are functions of (seed, epoch, sample), and of no rank, worker or generator."""

import random

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from lockstep.config_error import ConfigError
from lockstep.data.samples import SampleData, as_batch, targets_for_loss
from lockstep.data.seeded import seed_sample
from tests.split_loading import split_loader


class Draws(Dataset[tuple[Tensor, int]]):
    """23 samples: their number, and what each generator gives."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        drawn = [float(torch.rand(())), random.random(), float(np.random.rand())]
        return torch.tensor([float(index), *drawn], dtype=torch.float64), index


def batches(
    rank: int = 0, world: int = 1, workers: int = 0, epoch: int = 4, first: int = 0, seed: int = 9
) -> list[Tensor]:
    """Return the inputs of this rank's samples in each batch."""
    data = SampleData(Draws(), Draws(), Draws(), 23, (4,), seed, {"num_workers": workers})
    loader = split_loader(data, rank=rank, world=world, begin=(epoch, first), seed=seed)
    found = []
    for inputs, targets in loader:
        share = loader.shares.popleft()
        assert torch.equal(inputs[: share.count, 0].long(), share.ids)
        assert torch.equal(targets[: share.count], share.ids)
        found.append(inputs[: share.count])
    return found


def test_a_sample_is_drawn_under_its_own_seed() -> None:
    """By hand, with each generator."""
    seed_sample(9, 4, 17)
    wanted = [float(torch.rand(())), random.random(), float(np.random.rand())]
    own = {int(row[0]): row[1:].tolist() for batch in batches() for row in batch}
    assert own[17] == wanted
    assert len({tuple(values) for values in own.values()}) == 23
    assert {int(row[0]): row[1:].tolist() for batch in batches(epoch=5) for row in batch}[17] != wanted
    assert {int(row[0]): row[1:].tolist() for batch in batches(seed=8) for row in batch}[17] != wanted


@pytest.mark.parametrize("workers", [0, 2])
def test_neither_ranks_nor_workers_nor_a_resume_change_it(workers: int) -> None:
    """Three ranks, of which the last has nothing of the ragged batch."""
    whole = batches()
    parts = [batches(rank, 3, workers) for rank in range(3)]
    assert [len(part[-1]) for part in parts] == [1, 1, 0]
    for number, batch in enumerate(whole):
        for rank, part in enumerate(parts):
            assert torch.equal(part[number], batch[rank::3])
    resumed = batches(workers=workers, first=2)
    assert len(resumed) == 2
    assert all(map(torch.equal, resumed, whole[2:]))


@pytest.mark.parametrize("workers", [0, 2])
def test_the_ranks_own_generators_go_on_as_if_nothing_was_drawn(workers: int) -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    before = torch.rand(()), random.random(), np.random.rand()
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    batches(workers=workers)
    batches(2, 3, workers)
    assert (torch.rand(()), random.random(), np.random.rand()) == before


def test_an_evaluation_is_the_same_in_each_epoch() -> None:
    """Lightning turns the page of its sampler too."""
    loader = split_loader(SampleData(Draws(), Draws(), Draws(), 23, (4,), 9), stage="val")
    first = [inputs for inputs, _ in loader]
    loader.set_epoch(3)
    assert all(map(torch.equal, first, [inputs for inputs, _ in loader]))


def test_one_number_a_sample_is_a_column() -> None:
    """Else a squared error would compare each output with each target."""
    assert targets_for_loss(torch.zeros(5)).shape == (5, 1)
    assert targets_for_loss(torch.zeros(5, 2)).shape == (5, 2)
    assert targets_for_loss(torch.zeros(5, dtype=torch.int64)).shape == (5,)


@pytest.mark.parametrize("kind", [torch.int32, torch.uint8, torch.bool])
def test_whole_numbers_are_classes(kind: torch.dtype) -> None:
    for shape in ((5,), (5, 1)):
        found = targets_for_loss(torch.ones(shape, dtype=kind))
        assert (found.dtype, found.shape) == (torch.int64, (5,))


def test_what_is_no_pair_is_refused() -> None:
    split = [{"x": torch.zeros(3)}] * 4
    loader = split_loader(SampleData(split, split, split, 1, (3,), 9))
    batch = next(iter(loader))
    with pytest.raises(
        ConfigError, match=r"a batch of it is a mapping, .*; write data.inputs=KEY data.targets=KEY, of x"
    ):
        as_batch(batch, "pairs", torch.float32)
