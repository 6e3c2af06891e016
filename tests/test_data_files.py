"""Built-in data of files: text, arrays, folders of images; small real files, and invalid ones."""

import re
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from lockstep.config_error import ConfigError
from lockstep.datamodules import NPZ, ImageFolder, Text
from lockstep.datamodules.pictures import read_image
from lockstep.datamodules.text import SHAKESPEARE
from tests.comparing import require_close
from tests.conftest import MakeUserPlan
from tests.test_user_code import trained


def test_a_text_is_cut_into_sequences_with_their_next_characters(tmp_path: Path) -> None:
    """Characters are numbered in the order of their code points: a b c é."""
    (tmp_path / "text.txt").write_text("abcéabca", encoding="utf-8")
    data = Text(file=str(tmp_path / "text.txt"), length=3, val_size=0, test_size=0)
    data.setup()
    rows = sorted(zip(*(tensor.tolist() for tensor in data.splits["train"]), strict=True))
    assert rows == [([0, 1, 2], [1, 2, 3]), ([3, 0, 1], [0, 1, 2])]
    assert (data.sample_shape, data.num_outputs, data.characters) == ((3,), 4, "abcé")


def test_the_text_of_the_package_is_the_default() -> None:
    data = Text(length=50)
    data.setup()
    written = SHAKESPEARE.read_text()
    samples = sum(len(inputs) for inputs, _ in data.splits.values())
    assert samples == (len(written) - 1) // 50 > 700
    assert data.characters == "".join(sorted(set(written[: samples * 50 + 1])))
    assert "".join(data.characters[token] for token in data.tokens[:50]) == written[:50] != ""


def test_text_is_learned_by_a_recurrent_net_in_every_world(make_user_plan: MakeUserPlan) -> None:
    """Replicas of a recurrent net share its weights too."""
    net = ("model=char_rnn", "model.net.width=8", "precision=64-true", "optimizer.lr=0.05")
    job = (*net, "data=text", "data.length=100", "batch_size=100", "strategy.in_process=true")
    raw = make_user_plan(*job, "engine=raw")
    assert (raw.data.num_outputs, raw.data.name) == (58, "Text")
    single = trained(raw)
    require_close(single, trained(make_user_plan(*job, "engine=lightning", "strategy=dp", "devices=2", folder="dp")))
    lines = [line for line in (single / "record.jsonl").read_text().splitlines() if "validation" in line]
    perplexity = float(re.findall(r'"val/perplexity": ([\d.]+)', lines[-1])[0])
    assert perplexity < 50, "of 58 characters"


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


def test_arrays_with_and_without_splits_and_targets(tmp_path: Path, make_user_plan: MakeUserPlan) -> None:
    job = ("data=npz", "engine=raw", "strategy.in_process=true")
    x, y = np.arange(80.0).reshape(40, 2), np.arange(40) % 3
    file = saved(tmp_path / "one.npz", x=x, y=y)
    data = NPZ(file)
    data.setup()
    rows = torch.cat([torch.cat([split[0], split[1][:, None]], 1) for split in data.splits.values()])
    assert sorted(rows.tolist()) == [[*pair, label] for pair, label in zip(x.tolist(), y.tolist(), strict=True)]
    plan = make_user_plan("model=mlp", *job, f"data.file={file}")
    assert (plan.data.train_samples, plan.data.val_size, plan.data.num_classes) == (32, 4, 3)
    images = np.random.RandomState(0).randint(256, size=(6, 5, 4)).astype(np.uint8)
    colours = np.stack([images] * 3, axis=3)
    arrays = {"x_train": images, "y_train": y[:6], "x_test": colours, "y_test": y[:6].astype(">i2")}
    splits = NPZ(saved(tmp_path / "three.npz", **arrays)).load()
    assert torch.equal(splits["train"][0], torch.from_numpy(images)[:, None])
    assert torch.equal(splits["test"][0], torch.from_numpy(images)[:, None].expand(6, 3, 5, 4))
    assert splits["test"][1].tolist() == y[:6].tolist()
    with pytest.raises(ConfigError, match=r"^model.*16×16 or more"):
        make_user_plan(*job, f"data.file={tmp_path / 'three.npz'}", "model=cnn", folder="small")
    file = saved(tmp_path / "inputs.npz", x=x)
    assert [len(split) for split in NPZ(file).load().values()] == [1, 1, 1]
    trained(make_user_plan(*job, f"data.file={file}", "model=autoencoder", folder="inputs"))


def test_tokens_alone_are_a_language(tmp_path: Path) -> None:
    data = NPZ(saved(tmp_path / "tokens.npz", x=np.arange(60, dtype=np.int16).reshape(12, 5) % 7))
    assert (data.sample_shape, data.num_outputs, data.num_classes) == ((5,), 7, 0)
    assert data.load()["train"][0].dtype == torch.int64


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


NAMES = ("cat", "dog")


def draw_images(folder: Path, count: int) -> None:
    """Save images of several sizes for two classes; the red of an image is the number of its class."""
    for number, name in enumerate(NAMES):
        (folder / name).mkdir(parents=True)
        for index in range(count):
            image = Image.new("RGB", (12 + index, 10), (200 * number, 10 * index, 0))
            image.save(folder / name / f"{index}.{'gif' if index else 'png'}")


def test_images_of_a_folder_for_each_class(tmp_path: Path) -> None:
    draw_images(tmp_path / "one", 5)
    (tmp_path / "one" / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "one" / ".ipynb_checkpoints").mkdir()
    data = ImageFolder(str(tmp_path / "one"), size=8, val_size=2, test_size=0.1)
    splits = data.datasets
    assert {name: len(images) for name, images in splits.items()} == {"train": 7, "val": 2, "test": 1}
    assert (data.class_names, data.num_classes, data.sample_shape) == (NAMES, 2, (3, 8, 8))
    files = [images.dataset.samples[row][0] for images in splits.values() for row in images.indices]
    assert sorted(files) == sorted(map(str, tmp_path.rglob("*.[pg]??")))
    for file, (image, target) in zip(map(Path, files), chain(*splits.values()), strict=True):
        assert target == NAMES.index(file.parent.name)
        assert (type(image), image.shape) == (torch.Tensor, (3, 8, 8))
        expected = torch.tensor([200 * target, 10 * int(file.stem), 0]) / 255
        assert (image - expected[:, None, None]).abs().max() < 1e-6


def test_pictures_of_16_bits_are_scaled_to_bytes(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 257, 32896, 65535]], np.uint16)).save(tmp_path / "deep.png")
    assert np.array(read_image(str(tmp_path / "deep.png"), "L")).tolist() == [[0, 1, 128, 255]]
    assert read_image(str(tmp_path / "deep.png")).getpixel((2, 0)) == (128, 128, 128)


def test_images_in_three_splits_augmented_by_workers(tmp_path: Path, make_user_plan: MakeUserPlan) -> None:
    """Both engines, one rank and two: an augmentation is drawn for each sample, and in training alone.

    The net takes images of the default size.
    """
    for stage, count in (("train", 10), ("val", 3), ("test", 2)):
        draw_images(tmp_path / stage, count)
    jitter = "data.transforms=[{_target_:torchvision.transforms.v2.ColorJitter,brightness:0.5}]"
    images = ("data=image_folder", f"data.root={tmp_path}", jitter)
    job = (*images, "model=lenet", "model.net.dropout=0", "batch_size=6", "precision=64-true", "max_epochs=1")
    plan = make_user_plan(*job, "engine=raw", "data.num_workers=2", "strategy.in_process=true")
    choice: Any = plan.data
    assert (choice.train_samples, choice.val_size, choice.sample_shape) == (20, 6, (3, 64, 64))
    data = ImageFolder(str(tmp_path), transforms=[v2.ColorJitter(brightness=0.5)]).datasets
    torch.manual_seed(1)
    assert not torch.equal(data["train"][3][0], data["train"][3][0])
    assert torch.equal(data["val"][3][0], data["val"][3][0])
    single = trained(plan)
    require_close(single, trained(make_user_plan(*job, "engine=lightning", "strategy=ddp", "devices=2", folder="two")))


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (
            [],
            "data.root={root}: there is no such path; write data.root=FOLDER, with a folder of images for each class.",
        ),
        (["a.png"], "data.root={root}: Couldn't find any class folder in {root}.; write a folder"),
        (["cat/a.png", "dog/a.txt"], "data.root={root}: Found no valid file for the classes dog."),
        (["train/cat/a.png", "val/dog/a.png"], "data.root={root}: val has the classes dog, and train has cat; write"),
    ],
)
def test_invalid_folders_of_images_are_rejected(files: list[str], sentence: str, tmp_path: Path) -> None:
    root = tmp_path / "images"
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    with pytest.raises(ConfigError, match=re.escape(sentence.format(root=root))):
        ImageFolder(str(root))


def test_a_damaged_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a.png").write_bytes(b"no image")
    with pytest.raises(ConfigError, match=r"^data: .*/cat/a.png is no image that can be read .*; remove it.$"):
        ImageFolder(str(tmp_path), val_size=0, test_size=0)
