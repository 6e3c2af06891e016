"""The data modules that read files: MNIST, CIFAR-10, text, arrays, images; small real files, and invalid ones."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torchvision.transforms.v2 import ColorJitter

from lockstep.base.config_error import ConfigError
from lockstep.datamodules import CIFAR10, MNIST, NPZ, ImageFolder, Text
from lockstep.datamodules.image_folder import read_image
from lockstep.datamodules.text import SHAKESPEARE
from tests.test_datamodules import stock, tensors

NAMES = ("cat", "dog")


def test_the_real_files_load_as_torchvision_reads_them(mnist: str) -> None:
    data = MNIST(mnist)
    data.prepare_data()
    splits, reference = tensors(data), torchvision.datasets.MNIST(mnist, train=True)
    assert torch.equal(splits["train"][0][:, 0], reference.data[:55_000])
    assert torch.equal(splits["val"][1], reference.targets[55_000:])
    storages = [splits[name][0].untyped_storage() for name in ("train", "val")]
    assert storages[0].data_ptr() == storages[1].data_ptr(), "images are in memory once"
    everything = MNIST(mnist, val_size=0)
    assert len(tensors(everything)["train"][0]) == 60_000
    assert everything.val_dataloader() == []


@pytest.mark.parametrize("damage", ["short", "bit"])
def test_a_damaged_file_is_rejected(damage: str, mnist: str, tmp_path: Path) -> None:
    folder = tmp_path / "MNIST" / "raw"
    shutil.copytree(Path(mnist) / "MNIST" / "raw", folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)
    content = (file := folder / "t10k-labels-idx1-ubyte").read_bytes()
    file.write_bytes(content[:-1] if damage == "short" else content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ConfigError, match=rf"^data.root={tmp_path}: (MNIST cannot be read|its files are not those)"):
        MNIST(str(tmp_path)).prepare_data()


def test_images_of_cifar10(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.RandomState(0).randint(10, size=(24, 32, 32, 3)).astype(np.uint8)
    labels = [number % 10 for number in range(24)]

    def part(root: str, train: bool = True, download: bool = False) -> SimpleNamespace:
        half = slice(20) if train else slice(20, None)
        return SimpleNamespace(data=rows[half], targets=labels[half])

    monkeypatch.setattr("torchvision.datasets.CIFAR10", part)
    data = CIFAR10(val_size=3)
    data.prepare_data()
    images = torch.from_numpy(rows).permute(0, 3, 1, 2)
    for name, place in (("train", slice(17)), ("val", slice(17, 20)), ("test", slice(20, 24))):
        inputs, classes = tensors(data)[name]
        assert torch.equal(inputs, images[place])
        assert classes.tolist() == labels[place]


def test_a_text_is_cut_into_sequences_with_their_next_characters(tmp_path: Path) -> None:
    """Characters are numbered in the order of their code points: a b c é."""
    (tmp_path / "text.txt").write_text("abcéabca", encoding="utf-8")
    data = Text(file=str(tmp_path / "text.txt"), length=3, val_size=0, test_size=0)
    inputs, targets = tensors(data)["train"]
    assert sorted(inputs.tolist()) == [[0, 1, 2], [3, 0, 1]]
    assert sorted(targets.tolist()) == [[0, 1, 2], [1, 2, 3]]
    assert (data.num_outputs, data.sample_shape) == (4, (3,))


@pytest.mark.parametrize(
    ("file", "length", "sentence"),
    [
        ("nowhere.txt", 5, "data.file=nowhere.txt: it is no text in UTF-8 ([Errno 2] No such file or directory: "),
        (str(SHAKESPEARE), 0, "data.length=0: the text has "),
    ],
)
def test_invalid_text_is_rejected(file: str, length: int, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        Text(file=file, length=length)


def saved(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


def test_arrays_with_and_without_splits_and_targets(tmp_path: Path) -> None:
    x, y = np.arange(80.0).reshape(40, 2), np.arange(40) % 3
    data = NPZ(saved(tmp_path / "one.npz", x=x, y=y))
    splits = tensors(data)
    assert [len(inputs) for inputs, _ in splits.values()] == [32, 4, 4]
    for inputs, targets in splits.values():
        assert torch.equal(targets, inputs[:, 0].long() // 2 % 3)
    assert (data.sample_shape, data.num_classes, data.class_names) == ((2,), 3, ("0", "1", "2"))
    images = np.random.RandomState(0).randint(256, size=(6, 5, 4)).astype(np.uint8)
    colours = np.stack([images] * 3, axis=3)
    arrays = {"x_train": images, "y_train": y[:6], "x_test": colours, "y_test": y[:6].astype(">i2")}
    splits = tensors(NPZ(saved(tmp_path / "three.npz", **arrays)))
    assert [*splits] == ["train", "test"]
    assert torch.equal(splits["train"][0], torch.from_numpy(images)[:, None])
    assert torch.equal(splits["test"][0], torch.from_numpy(images)[:, None].expand(6, 3, 5, 4))
    assert splits["test"][1].tolist() == y[:6].tolist()
    assert NPZ(saved(tmp_path / "inputs.npz", x=x)).num_outputs == 2


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        (None, "it is no .npz file of numbers ([Errno 2] No such file"),
        ({"a": [1]}, "it holds a; write a file with x and y, or x_train, y_train, x_test, y_test."),
        ({"x": ["a", "b"]}, "it is no .npz file of numbers (Cannot cast array data from dtype('<U1')"),
    ],
)
def test_invalid_arrays_are_rejected(arrays: Any, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    if arrays:
        saved(path, **{name: np.array(values) for name, values in arrays.items()})
    with pytest.raises(ConfigError, match=re.escape(f"data.file={path}: {sentence}")):
        NPZ(str(path))


def draw_images(folder: Path, count: int) -> None:
    """Save images of several sizes for two classes; the red of an image is the number of its class."""
    for number, name in enumerate(NAMES):
        (folder / name).mkdir(parents=True)
        for index in range(count):
            Image.new("RGB", (12 + index, 10), (200 * number, 10 * index, 0)).save(folder / name / f"{index}.png")


@pytest.mark.filterwarnings("ignore")
def test_images_of_a_folder_for_each_class(tmp_path: Path) -> None:
    draw_images(tmp_path, 5)
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    data = ImageFolder(str(tmp_path), size=8, val_size=2, test_size=0.1)
    assert {name: len(images) for name, images in data.datasets.items()} == {"train": 7, "val": 2, "test": 1}
    assert (data.class_names, data.num_outputs, data.sample_shape) == (NAMES, 2, (3, 8, 8))
    files = [images.dataset.samples[row][0] for images in data.datasets.values() for row in images.indices]
    assert sorted(files) == sorted(map(str, tmp_path.rglob("*.png")))
    samples = [sample for images in data.datasets.values() for sample in images]
    for file, (image, target) in zip(map(Path, files), samples, strict=True):
        assert target == NAMES.index(file.parent.name)
        expected = torch.tensor([200 * target, 10 * int(file.stem), 0]) / 255
        assert (image - expected[:, None, None]).abs().max() < 1e-6
    assert {x for _, x, _ in stock(data, precision="64-true").seen["train"]} == {torch.float64}


def test_images_in_three_splits_are_augmented_in_training_alone(tmp_path: Path) -> None:
    for stage, count in (("train", 4), ("val", 3)):
        draw_images(tmp_path / stage, count)
    data = ImageFolder(str(tmp_path), transforms=[ColorJitter(brightness=0.5)])
    assert {name: len(images) for name, images in data.datasets.items()} == {"train": 8, "val": 6}
    torch.manual_seed(1)
    assert not torch.equal(data.datasets["train"][6][0], data.datasets["train"][6][0])
    assert torch.equal(data.datasets["val"][3][0], data.datasets["val"][3][0])


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ([], "data.root={root}: [Errno 2] No such file or directory: '{root}'; write data.root=FOLDER, with a folder"),
        (["cat/a.png", "dog/a.txt"], "data.root={root}: Found no valid file for the classes dog."),
        (["train/cat/a.png", "val/dog/a.png"], "data.root={root}: val has other classes than train; write"),
        (["cat/a.png"], "is no image that can be read"),
    ],
)
def test_invalid_folders_of_images_are_rejected(files: list[str], sentence: str, tmp_path: Path) -> None:
    root = tmp_path / "images"
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    with pytest.raises(ConfigError, match=re.escape(sentence.format(root=root))):
        ImageFolder(str(root), val_size=0, test_size=0)


def test_pictures_of_16_bits_are_scaled_to_bytes(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 257, 32896, 65535]], np.uint16)).save(tmp_path / "deep.png")
    assert np.array(read_image(str(tmp_path / "deep.png"), "L")).tolist() == [[0, 1, 128, 255]]
