"""Built-in data of files: text, arrays, folders of images, CIFAR-10; each of real small files, and what is wrong."""

import hashlib
import http.server
import io
import pickle
import re
import tarfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from lockstep.compare import compare
from lockstep.config_error import ConfigError
from lockstep.data import cifar10 as cifar10_files
from lockstep.data.cifar10 import CLASSES, RECORD, cifar10
from lockstep.data.image_folder import image_folder
from lockstep.data.npz import npz
from lockstep.data.text import SHAKESPEARE, text
from lockstep.data.user_data import load
from lockstep.schemas import UserData
from tests.conftest import MakeOwn
from tests.test_own_code import trained

# text


def test_a_text_is_cut_into_sequences_and_what_follows(tmp_path: Path) -> None:
    """Characters numbered in the order of their code points: a b c é."""
    (tmp_path / "own.txt").write_text("abcéabca", encoding="utf-8")
    inputs, targets = text(str(tmp_path / "own.txt"), length=3)
    assert inputs.tolist() == [[0, 1, 2], [3, 0, 1]]
    assert targets.tolist() == [[1, 2, 3], [0, 1, 2]]


def test_the_text_of_the_package_is_the_default() -> None:
    inputs, _ = text(length=50)
    written = SHAKESPEARE.read_text()
    assert len(inputs) == (len(written) - 1) // 50 > 700
    known = sorted(set(written[: len(inputs) * 50 + 1]))
    assert "".join(known[token] for token in inputs[0]) == written[:50] != ""


def test_text_is_learned_by_a_recurrent_net_in_every_world(make_own: MakeOwn) -> None:
    """Replicas of a recurrent net share its weights too."""
    net = ("task=language_modelling", "model=char_rnn", "model.width=8")
    job = (
        *net,
        "data=text",
        "data.length=100",
        "precision=64-true",
        "optimizer.lr=0.05",
        "batch_size=100",
        "strategy.in_process=true",
    )
    raw = make_own(*job, "engine=raw")
    assert (raw.data.classes, raw.model.name, raw.data.name) == (58, "CharRNN", "text")
    single = trained(raw)
    lightning = trained(make_own(*job, "engine=lightning", "strategy=dp", "devices=2", folder="dp"))
    verdict = compare(single, lightning)
    assert verdict.max_diff < 1e-10, verdict.text()
    line = [own for own in (single / "record.jsonl").read_text().splitlines() if "validation" in own][-1]
    perplexity = float(re.findall(r'"val/perplexity": ([\d.]+)', line)[0])
    assert perplexity < 50, "of 58 characters"


@pytest.mark.parametrize(
    ("content", "length", "sentence"),
    [
        (None, 5, "data.file={path}: it cannot be read (No such file or directory); write the path of a text, or"),
        (b"\xff\xfe", 5, "data.file={path}: it is no text in UTF-8 (byte 0); write the path of a text, or"),
        (b"short", 5, "data.length=5: {path} has 5 characters, and a sequence takes one more than that; write"),
        (b"short", 0, "data.length=0: it must be 1 or more; write data.length=64."),
    ],
)
def test_what_is_no_text(content: bytes | None, length: int, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(sentence.format(path=path))):
        text(str(path), length)


# arrays


def saved(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


def test_arrays_of_one_part_and_of_three(tmp_path: Path, make_own: MakeOwn) -> None:
    x, y = np.arange(80.0).reshape(40, 2), np.arange(40) % 3
    file = saved(tmp_path / "one.npz", x=x, y=y)
    made = npz(file)
    assert isinstance(made, tuple)
    assert [own.tolist() for own in made] == [x.tolist(), y.tolist()]
    plan = make_own("data=npz", f"data.file={file}", "engine=raw", "max_epochs=1")
    assert (plan.data.train_samples, plan.data.val_size, plan.data.classes) == (32, 4, 3)
    images = np.random.RandomState(0).randint(256, size=(6, 5, 4)).astype(np.uint8)
    colours = np.stack([images] * 3, axis=3)
    arrays = {"x_train": images, "y_train": y[:6], "x_test": colours, "y_test": y[:6].astype(">i2")}
    parts = npz(saved(tmp_path / "three.npz", **arrays))
    assert isinstance(parts, dict)
    assert torch.equal(parts["train"][0], torch.from_numpy(images)[:, None])
    assert torch.equal(parts["test"][0], torch.from_numpy(images)[:, None].expand(6, 3, 5, 4))
    assert parts["test"][1].tolist() == y[:6].tolist()
    file = saved(tmp_path / "alone.npz", x=x)
    assert isinstance(npz(file), torch.Tensor)
    trained(make_own("data=npz", f"data.file={file}", "task=autoencoding", "engine=raw", folder="own"))


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        (None, "it cannot be read (No such file or directory); write the path of an .npz file."),
        (b"no archive", "it is no .npz file of numbers; write the path of an .npz file."),
        ({"a": [1]}, "it holds a; write a file with x and y, or x_train, y_train, x_test, y_test."),
        ({"x": [1.0, 2.0], "y": [1]}, "x has 2 rows and y 1; write as many of both."),
        ({"x": ["a", "b"]}, "x is <U1 of shape (2,); write numbers, a row for each sample."),
        ({"x": [None]}, "it is no .npz file of numbers; write the path of an .npz file."),
    ],
)
def test_what_are_no_arrays(arrays: Any, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    if isinstance(arrays, bytes):
        path.write_bytes(arrays)
    elif arrays:
        saved(path, **{name: np.array(own) for name, own in arrays.items()})
    with pytest.raises(ConfigError, match=re.escape(f"data.file={path}: {sentence}")):
        npz(str(path))


# images


def drawn(folder: Path, count: int, number: int) -> None:
    """Images of other sizes, whose red is the number of their class."""
    folder.mkdir(parents=True)
    for index in range(count):
        colour = (200 * number, 10 * index, 0)
        Image.new("RGB", (12 + index, 10), colour).save(folder / f"{index}.png")


def test_images_of_a_folder_for_each_class(tmp_path: Path) -> None:
    for number, name in enumerate(("cat", "dog")):
        drawn(tmp_path / "one" / name, 5, number)
        (tmp_path / "one" / name / "notes.txt").write_text("no image")
    made = image_folder(str(tmp_path / "one"), size=8, val=2, test=0.1)
    assert {name: len(own) for name, own in made.items()} == {"train": 7, "val": 2, "test": 1}
    assert sorted(file for own in made.values() for file, _ in own.files) == sorted(tmp_path.rglob("*.png"))
    assert made["train"].classes == ["cat", "dog"]
    for own in made.values():
        for index, (file, target) in enumerate(own.files):
            image, found = own[index]
            assert found == target == ["cat", "dog"].index(file.parent.name)
            assert image.shape == (3, 8, 8)
            assert type(image) is torch.Tensor
            expected = torch.tensor([200 * target, 10 * int(file.stem), 0]) / 255
            assert (image - expected[:, None, None]).abs().max() < 1e-6


def test_images_in_three_parts_augmented_by_workers(tmp_path: Path, make_own: MakeOwn) -> None:
    """Both engines, one rank and two: an augmentation is the sample's own. Only training has it."""
    for part, count in (("train", 10), ("val", 3)):
        for number, name in enumerate(("cat", "dog")):
            drawn(tmp_path / "three" / part / name, count, number)
    jitter = "data.transforms=[{_target_:torchvision.transforms.v2.ColorJitter,brightness:0.5}]"
    images = ("data=image_folder", f"data.root={tmp_path / 'three'}", "data.size=8", jitter)
    job = (*images, "model=mlp", "batch_size=6", "model.hidden=[4]", "precision=64-true", "max_epochs=1")
    plan = make_own(*job, "engine=raw", "data.loader.num_workers=2")
    assert isinstance(plan.data, UserData)
    assert (plan.data.train_samples, plan.data.val_size, plan.data.shape) == (20, 6, (3, 8, 8))
    data: Any = load(plan.data, 0)
    torch.manual_seed(1)
    first, again = (data.train[3][0] for _ in range(2))
    assert not torch.equal(first, again)
    assert torch.equal(data.val[3][0], data.val[3][0])
    single = trained(plan)
    two = trained(make_own(*job, "engine=lightning", "strategy=ddp", "devices=2", folder="two"))
    verdict = compare(single, two)
    assert verdict.max_diff < 1e-10, verdict.text()


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ([], "data.root={root}: there is no such folder; write one that holds a folder for each class."),
        (["a.png"], "data.root={root}: {root} has no folders, one for each class; write one that has."),
        (
            ["cat/a.png", "dog/a.txt"],
            "data.root={root}: {root}/dog has no image; write folders that have, or",
        ),
        (["train/cat/a.png", "val/dog/a.png"], "data.root={root}: val has the classes dog, and train has cat; write"),
        (["cat/a.png"], "with data.val=0.9 data.test=0.9 nothing of its 1 images is left to train on; write smaller"),
    ],
)
def test_what_is_no_folder_of_images(files: list[str], sentence: str, tmp_path: Path) -> None:
    root = tmp_path / "own"
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    with pytest.raises(ConfigError, match=re.escape(sentence.format(root=root))):
        image_folder(str(root), val=0.9, test=0.9)


def test_a_damaged_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a.png").write_bytes(b"no image")
    own = image_folder(str(tmp_path), val=0, test=0)["train"]
    with pytest.raises(ConfigError, match=r"^data: .*/cat/a.png is no image that can be read .*; remove it.$"):
        own[0]


# CIFAR-10

FILES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


def made_up() -> dict[str, tuple[np.ndarray[Any, Any], list[int]]]:
    """Four images in each file."""
    chance = np.random.RandomState(0)
    return {
        name: (
            chance.randint(256, size=(4, RECORD - 1)).astype(np.uint8),
            [(3 * index + at) % CLASSES for at in range(4)],
        )
        for index, name in enumerate(FILES)
    }


def archive(path: Path, folder: str, contents: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def binary() -> dict[str, bytes]:
    rows = {name: np.column_stack([np.array(own, np.uint8), pixels]) for name, (pixels, own) in made_up().items()}
    return {f"{name}.bin": own.tobytes() for name, own in rows.items()} | {"batches.meta.txt": b"airplane\n"}


def test_both_versions_of_cifar10_are_the_same_images(tmp_path: Path, make_own: MakeOwn) -> None:
    for name in ("binary", "python", "unpacked"):
        (tmp_path / name).mkdir()
    archive(tmp_path / "binary" / "cifar-10-binary.tar.gz", "cifar-10-batches-bin", binary())
    pickled = {
        name: pickle.dumps({b"data": pixels, b"labels": own}, protocol=2) for name, (pixels, own) in made_up().items()
    }
    archive(tmp_path / "python" / "cifar-10-python.tar.gz", "cifar-10-batches-py", pickled)
    with tarfile.open(tmp_path / "binary" / "cifar-10-binary.tar.gz") as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    versions = [cifar10(str(tmp_path / name), val=3) for name in ("binary", "python", "unpacked")]
    for part, count in (("train", 17), ("val", 3), ("test", 4)):
        for own in versions:
            assert all(torch.equal(one, other) for one, other in zip(own[part], versions[0][part], strict=True))
            assert own[part][0].shape == (count, 3, 32, 32)
    pixels, targets = made_up()["data_batch_1"]
    assert torch.equal(versions[0]["train"][0][2], torch.from_numpy(pixels[2]).view(3, 32, 32))
    assert versions[0]["train"][1][:4].tolist() == targets
    plan = make_own("data=cifar10", f"data.root={tmp_path / 'binary'}", "data.val=3", "model=mlp", "engine=raw")
    assert isinstance(plan.data, UserData)
    assert (plan.data.train_samples, plan.data.classes, plan.data.shape) == (17, 10, (3, 32, 32))


class Calls:
    def __reduce__(self) -> Any:
        return print, ("called",)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("torn", "is damaged (Compressed file ended before the end-of-stream marker was reached); write the folder"),
        ("short", "is damaged (1000 bytes are not a multiple of 3073); write the folder of another"),
        ("classes", "is damaged (pixels of shape (1, 3072) and 1 classes); write the folder of another"),
        ("calls", "is damaged (it would call builtins.print); write the folder of another"),
        ("missing", "is damaged (data_batch_1 is not there); write the folder of another"),
    ],
)
def test_a_damaged_archive(name: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cifar-10-binary.tar.gz"
    if name == "calls":
        contents = {"data_batch_1": pickle.dumps({b"data": Calls()})}
        archive(tmp_path / "cifar-10-python.tar.gz", "cifar-10-batches-py", contents)
    else:
        wrong = {"short": bytes(1000), "classes": bytes([10, *bytes(RECORD - 1)])}
        contents = (
            {} if name == "missing" else {**binary(), "data_batch_1.bin": wrong.get(name, binary()["data_batch_1.bin"])}
        )
        archive(path, "cifar-10-batches-bin", contents)
    if name == "torn":
        path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        cifar10(str(tmp_path), val=3)
    assert capsys.readouterr().out == ""


def test_a_missing_archive_is_downloaded_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a server of this test: with other bits it is not believed, and nothing is left."""
    archive(tmp_path / "served.tar.gz", "cifar-10-batches-bin", binary())
    content = (tmp_path / "served.tar.gz").read_bytes()

    class Serves(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Serves) as httpd:
        httpd.daemon_threads = True
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        monkeypatch.setattr(cifar10_files, "URL", f"http://127.0.0.1:{httpd.server_port}/")
        with pytest.raises(ConfigError, match=r"its SHA-256 is [0-9a-f]{64}\); put it into "):
            cifar10(str(tmp_path / "typo"))
        assert not (tmp_path / "typo" / "cifar-10-binary.tar.gz").exists()
        monkeypatch.setattr(cifar10_files, "SHA256", hashlib.sha256(content).hexdigest())
        assert len(cifar10(str(tmp_path / "new"), val=3)["train"][0]) == 17
        httpd.shutdown()
    assert (tmp_path / "new" / "cifar-10-binary.tar.gz").read_bytes() == content
    monkeypatch.setattr(cifar10_files, "URL", "http://127.0.0.1:1/")
    assert len(cifar10(str(tmp_path / "new"), val=3)["train"][0]) == 17, "it is there"
    with pytest.raises(ConfigError, match=r"could not be downloaded \(http://127.0.0.1:1/: .*Connection refused"):
        cifar10(str(tmp_path / "offline"))
