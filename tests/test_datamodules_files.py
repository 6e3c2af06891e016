"""The data modules that read files: MNIST, CIFAR-10, text, arrays, images; small real files, and invalid ones."""

import hashlib
import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torchvision.transforms.v2 import ColorJitter

from lockstep.base.config_error import ConfigError
from lockstep.datamodules import CIFAR10, MNIST, NPZ, ImageFolder, Text, cifar10, mnist
from lockstep.datamodules.cifar10 import ARCHIVE, CLASSES, RECORD
from lockstep.datamodules.download import DataFile
from lockstep.datamodules.image_folder import read_image
from lockstep.datamodules.mnist import FILES
from lockstep.datamodules.text import SHAKESPEARE
from tests.test_datamodules import stock, tensors

IMAGES = FILES[0].name
BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
NAMES = ("cat", "dog")


def test_the_real_files_load_as_torchvision_reads_them(mnist: str) -> None:
    data = MNIST(mnist)
    data.prepare_data()
    splits, reference = tensors(data), torchvision.datasets.MNIST(mnist, train=True)
    assert torch.equal(splits["train"][0][:, 0], reference.data[:55_000])
    assert torch.equal(splits["val"][1], reference.targets[55_000:])
    assert torch.equal(splits["test"][0][:, 0], torchvision.datasets.MNIST(mnist, train=False).data)
    storages = [splits[name][0].untyped_storage() for name in ("train", "val")]
    assert storages[0].data_ptr() == storages[1].data_ptr(), "images are in memory once"
    assert storages[0].nbytes() == 60_000 * 784
    everything = MNIST(mnist, val_size=0)
    assert len(tensors(everything)["train"][0]) == 60_000
    assert everything.val_dataloader() == []
    few = tensors(MNIST(mnist, samples=300))
    assert torch.equal(few["train"][0][:, 0], reference.data[:300])
    assert torch.equal(few["val"][1], splits["val"][1])


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_files_lie_in_the_usual_place(suffix: str, tmp_path: Path) -> None:
    (path := tmp_path / "MNIST" / "raw" / f"{IMAGES}{suffix}").parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(ConfigError, match=re.escape(f"{path} cannot be read or downloaded (")):
        MNIST(str(tmp_path)).prepare_data()


def test_a_missing_file_is_downloaded_from_each_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mnist, "MIRRORS", ["http://127.0.0.1:1/a/", "http://127.0.0.1:1/b/"])
    with pytest.raises(ConfigError, match=rf"1/a/{IMAGES}.gz: .*refused.*1/b/{IMAGES}.gz: .*refused"):
        MNIST(str(tmp_path)).prepare_data()


def test_images_of_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four random images in each file, which the archive has in another order, beside a text."""
    records = np.random.RandomState(0).randint(10, size=(6, 4, RECORD)).astype(np.uint8)
    contents = {f"{name}.bin": rows.tobytes() for name, rows in zip(BATCHES, records, strict=True)}
    with tarfile.open(tmp_path / ARCHIVE.name, "w:gz") as tar:
        for name, content in [("batches.meta.txt", b"airplane"), *reversed(contents.items())]:
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    archive = (tmp_path / ARCHIVE.name).read_bytes()
    small = DataFile(ARCHIVE.name, len(archive), hashlib.sha256(archive).hexdigest())
    monkeypatch.setattr(cifar10, "ARCHIVE", small)
    data = CIFAR10(str(tmp_path), val_size=3)
    data.prepare_data()
    rows = torch.from_numpy(records.reshape(-1, RECORD))
    for name, part in (("train", rows[:17]), ("val", rows[17:20]), ("test", rows[20:])):
        images, classes = tensors(data)[name]
        assert torch.equal(images, part[:, 1:].view(-1, 3, 32, 32))
        assert torch.equal(classes, part[:, 0].long())
    assert (data.sample_shape, data.num_outputs, data.class_names) == ((3, 32, 32), 10, CLASSES)


def test_a_text_is_cut_into_sequences_with_their_next_characters(tmp_path: Path) -> None:
    """Characters are numbered in the order of their code points: a b c é."""
    (tmp_path / "text.txt").write_text("abcéabca", encoding="utf-8")
    data = Text(file=str(tmp_path / "text.txt"), length=3, val_size=0, test_size=0)
    inputs, targets = tensors(data)["train"]
    assert sorted(inputs.tolist()) == [[0, 1, 2], [3, 0, 1]]
    assert sorted(targets.tolist()) == [[0, 1, 2], [1, 2, 3]]
    assert (data.characters, data.num_outputs, data.sample_shape) == ("abcé", 4, (3,))


def test_the_text_of_the_package_is_the_default() -> None:
    data, written = Text(length=50), SHAKESPEARE.read_text()
    splits = tensors(data)
    assert sum(len(inputs) for inputs, _ in splits.values()) == (len(written) - 1) // 50 > 700
    for inputs, targets in splits.values():
        text = "".join(data.characters[token] for token in [*inputs[0].tolist(), targets[0, -1]])
        assert text in written


@pytest.mark.parametrize(
    ("content", "length", "sentence"),
    [
        (None, 5, "data.file={path}: it is no text in UTF-8 ([Errno 2] No such file or directory: "),
        (b"\xff\xfe", 5, "data.file={path}: it is no text in UTF-8 ('utf-8' codec can't decode byte 0xff"),
        (b"short", 5, "data.length=5: it must be from 1 to 4, as {path} has 5 characters; write data.length=1."),
        (b"short", 0, "data.length=0: it must be from 1 to 4"),
    ],
)
def test_invalid_text_is_rejected(content: bytes | None, length: int, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(sentence.format(path=path))):
        Text(file=str(path), length=length)


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


def test_arrays_of_inputs_alone(tmp_path: Path) -> None:
    """Real numbers or pixels have as many outputs as numbers; whole numbers are tokens."""
    for values, outputs, dtype in (
        (np.ones((20, 6)), 6, torch.float32),
        (np.ones((20, 4, 5, 3), np.uint8), 60, torch.float32),
        (np.arange(80).reshape(20, 4) % 9, 9, torch.int64),
    ):
        data = NPZ(saved(tmp_path / "inputs.npz", x=values))
        inputs = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
        assert (data.num_outputs, data.num_classes, inputs.dtype) == (outputs, 0, dtype)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        (None, "there is no such path; write data.file=FILE.npz, with arrays x and y."),
        (b"no archive", "it is no .npz file of numbers ("),
        ({"a": [1]}, "it holds a; write a file with x and y, or x_train, y_train, x_test, y_test."),
        ({"x": ["a", "b"]}, "it is no .npz file of numbers (Cannot cast array data from dtype('<U1')"),
        ({"x": [None]}, "it is no .npz file of numbers (Object arrays cannot be loaded"),
    ],
)
def test_invalid_arrays_are_rejected(arrays: Any, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    if isinstance(arrays, bytes):
        path.write_bytes(arrays)
    elif arrays:
        saved(path, **{name: np.array(values) for name, values in arrays.items()})
    with pytest.raises(ConfigError, match=re.escape(f"data.file={path}: {sentence}")):
        NPZ(str(path))


def draw_images(folder: Path, count: int) -> None:
    """Save images of several sizes for two classes; the red of an image is the number of its class."""
    for number, name in enumerate(NAMES):
        (folder / name).mkdir(parents=True)
        for index in range(count):
            image = Image.new("RGB", (12 + index, 10), (200 * number, 10 * index, 0))
            image.save(folder / name / f"{index}.{'gif' if index else 'png'}")


@pytest.mark.filterwarnings("ignore")
def test_images_of_a_folder_for_each_class(tmp_path: Path) -> None:
    draw_images(tmp_path, 5)
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    data = ImageFolder(str(tmp_path), size=8, val_size=2, test_size=0.1)
    assert {name: len(images) for name, images in data.datasets.items()} == {"train": 7, "val": 2, "test": 1}
    assert (data.class_names, data.num_outputs, data.sample_shape) == (NAMES, 2, (3, 8, 8))
    files = [images.dataset.samples[row][0] for images in data.datasets.values() for row in images.indices]
    assert sorted(files) == sorted(map(str, tmp_path.rglob("*.[pg]??")))
    samples = [sample for images in data.datasets.values() for sample in images]
    for file, (image, target) in zip(map(Path, files), samples, strict=True):
        assert target == NAMES.index(file.parent.name)
        assert (type(image), image.shape) == (torch.Tensor, (3, 8, 8))
        expected = torch.tensor([200 * target, 10 * int(file.stem), 0]) / 255
        assert (image - expected[:, None, None]).abs().max() < 1e-6
    assert {x for _, x, _ in stock(data, precision="64-true").seen["train"]} == {torch.float64}


def test_images_in_three_splits_are_augmented_in_training_alone(tmp_path: Path) -> None:
    for stage, count in (("train", 4), ("val", 3)):
        draw_images(tmp_path / stage, count)
    data = ImageFolder(str(tmp_path), transforms=[ColorJitter(brightness=0.5)])
    assert {name: len(images) for name, images in data.datasets.items()} == {"train": 8, "val": 6}
    assert data.test_dataloader() == []
    torch.manual_seed(1)
    assert not torch.equal(data.datasets["train"][6][0], data.datasets["train"][6][0])
    assert torch.equal(data.datasets["val"][3][0], data.datasets["val"][3][0])


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ([], "data.root={root}: there is no such path; write data.root=FOLDER, with a folder of images for each class"),
        (["a.png"], "data.root={root}: Couldn't find any class folder in {root}.; write a folder"),
        (["cat/a.png", "dog/a.txt"], "data.root={root}: Found no valid file for the classes dog."),
        (["train/cat/a.png", "val/dog/a.png"], "data.root={root}: val has the classes dog, and train has cat; write"),
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
    assert read_image(str(tmp_path / "deep.png")).getpixel((2, 0)) == (128, 128, 128)


INVALID: dict[str, Callable[[], Any]] = {
    "data.val_size=60000: it must be from 0 to 59999": lambda: MNIST(val_size=60_000),
    "data.samples=55001: it must be from 1 to 55000": lambda: MNIST(samples=55_001),
    "data.std=0: it must be above 0": lambda: MNIST(std=0),
    "data.val_size=50000: it must be from 0 to 49999": lambda: CIFAR10(val_size=50_000),
}


@pytest.mark.parametrize("sentence", INVALID)
def test_wrong_values_are_told_on_construction(sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{sentence}.*; write "):
        INVALID[sentence]()
