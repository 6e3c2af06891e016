from itertools import chain

import pytest
import torch
from torch.utils.data import DistributedSampler, TensorDataset

from lockstep.sampler import epoch_order, rank_slices


def shares(samples: int, batch_size: int, world: int, epoch: int = 0, seed: int = 3) -> list[list[list[int]]]:
    """Return the samples of each rank in each batch."""
    order = epoch_order(samples, seed, epoch)
    return [[ids.tolist() for ids in rank_slices(order, batch_size, rank, world)] for rank in range(world)]


def test_by_hand() -> None:
    order = torch.tensor([6, 2, 5, 0, 4, 1, 3])
    assert [ids.tolist() for ids in rank_slices(order, 4, rank=0, world_size=1)] == [[6, 2, 5, 0], [4, 1, 3]]
    assert [ids.tolist() for ids in rank_slices(order, 4, rank=0, world_size=2)] == [[6, 5], [4, 3]]
    assert [ids.tolist() for ids in rank_slices(order, 4, rank=1, world_size=2)] == [[2, 0], [1]]


def test_the_order_is_that_of_torchs_distributed_sampler() -> None:
    sampler: DistributedSampler[int] = DistributedSampler(
        TensorDataset(torch.zeros(50)), num_replicas=1, rank=0, seed=3
    )
    sampler.set_epoch(4)
    assert epoch_order(50, seed=3, epoch=4).tolist() == list(sampler)
    assert epoch_order(50, seed=3, epoch=5).tolist() != list(sampler)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("samples", [1, 5, 12, 13, 23, 24])
def test_every_world_sees_the_same_global_batches_each_sample_once(samples: int, world: int) -> None:
    ranks, [single] = shares(samples, 12, world), shares(samples, 12, 1)
    batches = [sorted(chain(*slices)) for slices in zip(*ranks, strict=True)]
    assert batches == [sorted(batch) for batch in single]
    assert sorted(chain(*batches)) == list(range(samples))


def test_a_rank_without_samples_still_gets_its_empty_batch() -> None:
    ranks = shares(13, 12, 4)
    assert [len(rank[-1]) for rank in ranks] == [1, 0, 0, 0]


def test_epochs_differ_and_seeds_are_offset_by_them() -> None:
    assert shares(30, 12, 2, epoch=0) != shares(30, 12, 2, epoch=1)
    assert shares(30, 12, 2, epoch=1, seed=3) == shares(30, 12, 2, epoch=0, seed=4)
