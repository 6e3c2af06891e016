"""The partition that is printed: that of training, beside that of torch."""

import re
from itertools import chain

import pytest
import torch

from lockstep.collectives.__main__ import main
from lockstep.collectives.partition import Options, describe, lockstep_batches


@pytest.mark.parametrize("devices", [1, 3, 7])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ours_is_what_training_takes(devices: int, drop_last: bool) -> None:
    """Epoch e walks the permutation of 42 + e; rank r takes positions r, r + W, … of each batch of 2·W."""
    options = Options(devices=devices, drop_last=drop_last)
    size = 2 * devices
    for epoch in (0, 1, 5):
        order = torch.randperm(100, generator=torch.Generator().manual_seed(42 + epoch)).tolist()
        batches = [order[start : start + size] for start in range(0, 100, size)]
        batches = [batch for batch in batches if len(batch) == size or not drop_last]
        shares = [lockstep_batches(options, epoch, rank) for rank in range(devices)]
        assert shares == [[batch[rank::devices] for batch in batches] for rank in range(devices)]
        seen = [*chain.from_iterable(chain.from_iterable(shares))]
        assert len(seen) == len({*seen}) == (100 // size * size if drop_last else 100)


@pytest.mark.parametrize(("devices", "samples"), [(3, 100), (8, 1)])
def test_repeats_are_those_that_torch_adds(devices: int, samples: int) -> None:
    """DistributedSampler gives all ranks equally many."""
    page = describe(Options(devices, samples, epochs=1), 120).split("seed=42)")[1].split("seen")[0]
    shown = re.findall(r"\d+\*?", re.sub(r"rank \d+:", "", page))
    assert sum(sample.endswith("*") for sample in shown) == -(-samples // devices) * devices - samples
    assert sorted(int(sample) for sample in shown if not sample.endswith("*")) == list(range(samples))


def test_the_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As it is typed."""
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["partition", "devices=3"]) == 0
    page = capsys.readouterr().out
    assert "seen: 34 + 33 + 33 = 100 of 100 samples, none repeated" in page
    assert "seen: 34 + 34 + 34 = 102 of 100 samples, 2 repeated" in page
    assert max(map(len, page.splitlines())) <= 120
    page = describe(Options(samples=20, drop_last=True, epochs=1), 120)
    assert page.count("seen: 6 + 6 + 6 = 18 of 20 samples, none repeated; 2 left out") == 2
