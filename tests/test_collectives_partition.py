"""The partition that is printed: that of training, beside that of torch."""

import re
import sys
from collections import Counter
from itertools import chain

import pytest
import torch

from lockstep.collectives.partition import Partition, distributed_sampler, ours, repeats, text
from tests.conftest import Command


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ours_is_what_training_takes(devices: int, drop_last: bool) -> None:
    """Epoch e walks the permutation of 42 + e; rank r takes places r, r + W, … of each batch of 2·W."""
    wanted = Partition(devices=devices, drop_last=drop_last)
    size = 2 * devices
    for epoch in (0, 1, 5):
        order = torch.randperm(100, generator=torch.Generator().manual_seed(42 + epoch)).tolist()
        batches = [order[start : start + size] for start in range(0, 100, size)]
        batches = [batch for batch in batches if len(batch) == size or not drop_last]
        for rank, share in enumerate(ours(wanted, epoch)):
            assert share == [batch[rank::devices] for batch in batches]
        seen = Counter(chain.from_iterable(chain.from_iterable(ours(wanted, epoch))))
        assert set(seen.values()) == {1}
        assert len(seen) == (100 // wanted.batch_size * wanted.batch_size if drop_last else 100)


@pytest.mark.parametrize(("devices", "samples"), [(3, 100), (4, 101), (2, 100), (5, 3), (8, 1)])
def test_repeats_are_those_that_torch_adds(devices: int, samples: int) -> None:
    shares = distributed_sampler(Partition(devices=devices, samples=samples), 0)
    marks = repeats(shares)
    assert sum(map(sum, marks)) == -(-samples // devices) * devices - samples
    firsts = [
        sample
        for share, mark in zip(shares, marks, strict=True)
        for sample, again in zip(share, mark, strict=True)
        if not again
    ]
    assert sorted(firsts) == list(range(samples))


def test_the_page() -> None:
    page = text(Partition(), 120)
    assert "seen: 34 + 33 + 33 = 100 of 100 samples, each exactly once, on exactly one rank" in page
    assert "seen: 34 + 34 + 34 = 102 of 100 samples, 2 repeated" in page
    assert page.count("*") == 1 + 2 * 2, "the legend's, and two an epoch"
    assert max(map(len, page.splitlines())) <= 120
    blocks = re.split(r"\n\n", page)
    assert len(blocks) == 1 + 2 * 2
    for block in blocks[1:]:
        numbers = "".join(line for line in block.splitlines()[1:] if "seen" not in line)
        numbers = re.sub(r"rank \d:", "", numbers)
        shown = [int(number) for number in re.findall(r"\d+", numbers)]
        assert set(shown) == set(range(100))
    assert blocks[1].splitlines()[1:] != blocks[3].splitlines()[1:], "another epoch, another order"


def test_lines_break_between_batches() -> None:
    for line in text(Partition(samples=50, batch_size_per_device=3), 40).splitlines()[2:]:
        if line.startswith(("  rank ", "     ")):
            for batch in line.split(":")[-1].split("|"):
                assert len(batch.split()) in (0, 1, 2, 3)
    wrapped = [line for line in text(Partition(epochs=1), 60).splitlines() if line.endswith("|")]
    assert wrapped


def test_left_out() -> None:
    page = text(Partition(samples=20, drop_last=True, epochs=1), 120)
    assert "seen: 6 + 6 + 6 = 18 of 20 samples, each exactly once, on exactly one rank; 2 left out" in page
    assert "0 repeated; 2 left out" in page


def test_as_it_is_typed(command: Command) -> None:
    ended = command(sys.executable, "-m", "lockstep.collectives", "partition", "devices=3")
    assert (ended.status, ended.err) == (0, "")
    assert "34 + 33 + 33 = 100" in ended.out
    assert not list(ended.folder.iterdir())
