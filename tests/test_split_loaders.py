"""Batches fetched in blocks are the batches of an index by hand, in aligned memory."""

from collections.abc import Callable

import pytest
import torch

from lockstep.data import tensors
from lockstep.data.samples import Splits
from lockstep.data.tensors import ALIGNED, Split, prepare_for_net
from lockstep.sampler import epoch_order
from tests.split_loading import split_loader


def numbers(samples: int = 23) -> Splits:
    """Rows of 5 float64: 20 bytes a sample in float32, so that few batches begin at a multiple of 64."""
    split = Split(torch.randn(samples, 5, dtype=torch.float64), torch.randn(samples, 1, dtype=torch.float64))
    return Splits(split, split, split)


def images(samples: int = 23) -> Splits:
    rows = torch.randint(0, 256, (samples, 1, 4, 4), dtype=torch.uint8)
    split = Split(rows, torch.arange(samples) % 10, mean=0.25, std=0.5)
    return Splits(split, split, split)


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("block", [1, 300, 2**20])
@pytest.mark.parametrize("create", [numbers, images])
def test_blocks_change_nothing(
    create: Callable[[], Splits], block: int, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three ranks, of which the last has nothing of the ragged batch; the epoch begins at its second batch."""
    monkeypatch.setattr(tensors, "BLOCK_BYTES", block)
    data = create()
    loader = split_loader(data, rank=rank, world=3, begin=(4, 1))
    slices = [ids[rank::3] for ids in torch.split(epoch_order(23, 1, 4), 7)][1:]
    batches = [*loader]
    assert [share.count for share in loader.shares] == {0: [3, 3, 1], 1: [2, 2, 1], 2: [2, 2, 0]}[rank]
    for ids, batch, share in zip(slices, batches, loader.shares, strict=True):
        expected = data.train.as_float(data.train[ids], torch.float32)
        assert torch.equal(share.ids, ids)
        assert share.is_dummy == (len(ids) == 0)
        assert all(torch.equal(tensor[: len(ids)], other) for tensor, other in zip(batch, expected, strict=True))
        assert batch.inputs.dtype == torch.float32
        assert batch.inputs.is_contiguous()
        assert batch.inputs.data_ptr() % ALIGNED == 0


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("samples", [1, 7, 9])
def test_ranks_share_out_each_batch(samples: int, world: int) -> None:
    """A rank without samples of a ragged batch has an empty share of it, so ranks have equally many batches."""
    batches = torch.split(epoch_order(samples, seed=1, epoch=0), 7)
    for rank in range(world):
        loader = split_loader(numbers(samples), rank=rank, world=world)
        assert len([*loader]) == len(batches)
        assert [share.ids.tolist() for share in loader.shares] == [ids.tolist()[rank::world] for ids in batches]


def test_a_resumed_epoch_has_the_length_of_a_complete_one() -> None:
    assert len(split_loader(numbers(), begin=(0, 2))) == 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("create", [numbers, images])
def test_data_that_fits_lies_on_the_gpu_and_gives_the_same_batches(
    create: Callable[[], Splits], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, data = torch.device("cuda", 0), create()
    resident = [*split_loader(data, device=device)]
    for fraction, where in ((tensors.RESIDENT, "cuda"), (0.0, "cpu")):
        monkeypatch.setattr(tensors, "RESIDENT", fraction)
        assert prepare_for_net(data.datasets, device, torch.float32)["train"].inputs.device.type == where
    for one, other in zip(resident, split_loader(data, device=device), strict=True):
        assert all(map(torch.equal, one, other))
