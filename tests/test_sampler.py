import torch
from torch.utils.data import DistributedSampler, TensorDataset

from lockstep.sampler import epoch_order


def test_the_order_is_that_of_torchs_distributed_sampler() -> None:
    sampler: DistributedSampler[int] = DistributedSampler(
        TensorDataset(torch.zeros(50)), num_replicas=1, rank=0, seed=3
    )
    sampler.set_epoch(4)
    assert epoch_order(50, seed=3, epoch=4).tolist() == list(sampler)
    assert epoch_order(50, seed=3, epoch=5).tolist() != list(sampler)
