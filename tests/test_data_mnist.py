"""MNIST's real files, as torchvision reads them."""

from pathlib import Path

import pytest
import torch
from lockstep.data import mnist as mnist_files
from lockstep.data.mnist import FILES, find, load, prepare
from torchvision.datasets import MNIST

from lockstep.config_error import ConfigError

IMAGES = FILES[0].name


def test_the_real_files_load_as_torchvision_reads_them(mnist: str) -> None:
    prepare(mnist)
    tensors = load(mnist, val_size=5000, mean=0.1307, std=0.3081)
    reference = MNIST(mnist, train=True)
    assert torch.equal(tensors.train.inputs[:, 0], reference.data[:55_000])
    assert torch.equal(tensors.val.targets, reference.targets[55_000:])
    assert torch.equal(tensors.test.inputs[:, 0], MNIST(mnist, train=False).data)
    storages = [split.inputs.untyped_storage() for split in (tensors.train, tensors.val)]
    assert storages[0].data_ptr() == storages[1].data_ptr(), "images are in memory once"
    assert storages[0].nbytes() == 60_000 * 784
    assert len(load(mnist, val_size=0, mean=0.0, std=1.0).train) == 60_000
    few = load(mnist, val_size=5000, mean=0.1307, std=0.3081, samples=300)
    assert torch.equal(few.train.inputs[:, 0], reference.data[:300])
    assert torch.equal(few.val.targets, tensors.val.targets)


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
        prepare(str(tmp_path))
