"""Batches fetched in blocks are the batches that an index by hand gives, in memory that is aligned."""

import pytest
import torch

from lockstep.data.tensors import Batch, Split, TensorData
from lockstep.loaders import in_memory
from lockstep.loaders.in_memory import ALIGNED, to_device_if_fits
from lockstep.sampler import epoch_order, rank_slices
from tests.split_loading import CPU, split_loader


def numbers(samples: int = 23) -> TensorData:
    """Rows of 5 float64: 20 bytes a sample in float32, so that few batches begin at a multiple of 64."""
    split = Split(torch.randn(samples, 5, dtype=torch.float64), torch.randn(samples, 1, dtype=torch.float64))
    return TensorData(split, split, split, outputs=1)


def images(samples: int = 23) -> TensorData:
    split = Split(torch.randint(0, 256, (samples, 1, 4, 4), dtype=torch.uint8), torch.arange(samples) % 10)
    return TensorData(split, split, split, outputs=10, mean=0.25, std=0.5)


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("block", [1, 300, 2**20])
@pytest.mark.parametrize("make", [numbers, images])
def test_blocks_change_nothing(make: type, block: int, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three ranks, a ragged last batch of which rank 2 has nothing, and an epoch that begins at its second batch."""
    monkeypatch.setattr(in_memory, "BLOCK_BYTES", block)
    data = make()
    loader = split_loader(data, rank=rank, world=3, begin=(4, 1))
    batches = [*loader]
    found = [
        Batch(*(tensor[: share.count] for tensor in batch)) for batch, share in zip(batches, loader.shares, strict=True)
    ]
    slices = [*rank_slices(epoch_order(23, 1, 4), 7, rank, 3)][1:]
    wanted = [data.as_float(data.train[ids], torch.float32) for ids in slices]
    assert len(found) == len(wanted) == 3
    assert [len(batch.ids) for batch in found] == {0: [3, 3, 1], 1: [2, 2, 1], 2: [2, 2, 0]}[rank]
    for own, other in zip(found, wanted, strict=True):
        assert own.inputs.dtype == torch.float32
        assert all(torch.equal(*pair) for pair in zip(own, other, strict=True))
        assert own.inputs.is_contiguous()
        assert own.inputs.data_ptr() % ALIGNED == 0


def test_its_length_is_that_of_a_whole_epoch() -> None:
    assert len(split_loader(numbers(), begin=(0, 2))) == 4


def test_on_a_cpu_data_stays_where_it_is() -> None:
    data = numbers()
    assert to_device_if_fits(data, CPU) is data


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("make", [numbers, images])
def test_data_that_fits_lies_on_the_gpu_and_gives_the_same_batches(make: type, monkeypatch: pytest.MonkeyPatch) -> None:
    device, data = torch.device("cuda", 0), make()
    there = to_device_if_fits(data, device)
    assert there.train.inputs.device == device
    monkeypatch.setattr(in_memory, "RESIDENT", 0.0)
    assert to_device_if_fits(data, device) is data
    own, other = (split_loader(which, device=device) for which in (there, data))
    for one, two in zip(own, other, strict=True):
        assert all(torch.equal(*pair) for pair in zip(one, two, strict=True))
