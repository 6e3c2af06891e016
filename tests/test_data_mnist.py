"""MNIST's real files, as torchvision reads them."""

from pathlib import Path

import pytest
import torch
from torchvision.datasets import MNIST

from lockstep import datamodules
from lockstep.config_error import ConfigError
from lockstep.datamodules import mnist as mnist_files
from lockstep.datamodules.mnist import FILES, find

IMAGES = FILES[0].name


def test_the_real_files_load_as_torchvision_reads_them(mnist: str) -> None:
    data, few = datamodules.MNIST(mnist), datamodules.MNIST(mnist, samples=300)
    data.prepare_data()
    data.setup("fit")
    train, val, test = data.splits.values()
    reference = MNIST(mnist, train=True)
    assert torch.equal(train[0][:, 0], reference.data[:55_000])
    assert torch.equal(val[1], reference.targets[55_000:])
    assert torch.equal(test[0][:, 0], MNIST(mnist, train=False).data)
    storages = [split[0].untyped_storage() for split in (train, val)]
    assert storages[0].data_ptr() == storages[1].data_ptr(), "images are in memory once"
    assert storages[0].nbytes() == 60_000 * 784
    few.setup()
    assert torch.equal(few.splits["train"][0][:, 0], reference.data[:300])
    assert torch.equal(few.splits["val"][1], val[1])
    whole = datamodules.MNIST(mnist, val_size=0)
    whole.setup()
    assert {name: len(split[0]) for name, split in whole.splits.items()} == {"train": 60_000, "test": 10_000}


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("folder", ["MNIST/raw", "raw", "."])
def test_files_lie_in_the_usual_places(folder: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / folder / f"{IMAGES}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    assert find(tmp_path, FILES[0]) is None
    path.touch()
    assert find(tmp_path, FILES[0]) == path


def test_a_missing_file_is_downloaded_from_each_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mnist_files, "MIRRORS", ["http://127.0.0.1:1/a/", "http://127.0.0.1:1/b/"])
    with pytest.raises(ConfigError, match=rf"1/a/{IMAGES}.gz: .*refused.*1/b/{IMAGES}.gz: .*refused"):
        datamodules.MNIST(str(tmp_path)).prepare_data()
