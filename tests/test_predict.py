"""`python -m lockstep.predict`: pictures and arrays."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, default_collate
from torchvision.transforms import v2

import lockstep
from lockstep.command.inference import load_with_plan
from lockstep.datamodules import Digits
from lockstep.datamodules.datasets import Datasets
from lockstep.predict import main, predict
from tests.conftest import IN_PROCESS

pytestmark = IN_PROCESS
Capture = pytest.CaptureFixture[str]


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Grey pictures whose left half is darker in one class; `transform` takes PIL images, as torchvision's do."""

    classes = ("dark", "light")

    def __init__(self) -> None:
        self.transform = v2.Compose(
            [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Resize(8), v2.Normalize([0.4], [0.2])]
        )

    def __len__(self) -> int:
        return 60

    def picture(self, index: int) -> Image.Image:
        pixels = np.random.default_rng(index).integers(0, 160, (16, 16), dtype=np.uint8)
        pixels[:, :8] += np.uint8(40 * (index % 2))
        return Image.fromarray(pixels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.picture(index)), index % 2


DIVIDED = {"_target_": "lockstep.datamodules.Datasets", "batch_size": 8}
QUIET = ("logger=none", "threads=1", "max_epochs=1", "strategy.in_process=true")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    lockstep.run([*QUIET, "model.net.hidden=[16]", f"hydra.run.dir={folder}"])
    return folder


def test_pictures_and_arrays_of_the_test_split_are_classified_as_in_the_run(run: Path, tmp_path: Path) -> None:
    plan, module = load_with_plan(run)
    images = Digits().load()["test"][0][:100]
    np.save(tmp_path / "x.npy", images.numpy())
    (tmp_path / "pictures").mkdir()
    for index, image in enumerate(images):
        Image.fromarray(image[0].numpy()).save(tmp_path / "pictures" / f"{index:03}.png")
    expected = module((images / 255 - Digits.mean) / Digits.std)
    for name in ("x.npy", "pictures"):
        names, outputs = predict(plan, module, [str(tmp_path / name)])
        assert torch.allclose(outputs, expected, atol=1e-5)
    assert names[:2] == [str(tmp_path / "pictures" / f"00{index}.png") for index in range(2)]


@pytest.fixture
def predicted(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def command(*words: str) -> int:
        return main([str(run), *words])

    return command


def test_the_command_prints_csv(predicted: Callable[..., int], run: Path, capsys: Capture) -> None:
    images = Digits().load()["test"][0][:70]
    np.save("x.npy", images.numpy())
    assert predicted("x.npy") == 0
    rows = [*csv.DictReader(capsys.readouterr().out.splitlines())]
    expected = lockstep.load(run)((images / 255 - Digits.mean) / Digits.std).double().softmax(1).max(1)
    assert [row["input"] for row in rows] == [f"x.npy[{index}]" for index in range(70)]
    assert [int(row["class"]) for row in rows] == expected.indices.tolist()
    assert [float(row["probability"]) for row in rows] == pytest.approx(expected.values.tolist(), abs=1e-5)


def test_pictures_go_through_the_transform_of_the_dataset(tmp_path: Path) -> None:
    """The raw samples of the test split have the accuracy of the run, too."""
    words = ("model.net.hidden=[8]", "batch_size=8", "max_epochs=3", f"hydra.run.dir={tmp_path / 'run'}")
    result = lockstep.run([*QUIET, *words], data=DIVIDED | {"dataset": {"_target_": f"{__name__}.Pictures"}})
    plan, net = load_with_plan(tmp_path / "run")
    test = Datasets(Pictures()).datasets["test"]
    inputs, targets = default_collate([test[index] for index in range(len(test))])
    expected = net(inputs)
    assert (expected.argmax(1) == targets).double().mean().item() == pytest.approx(result["test/acc"])
    for index in test.indices:
        Pictures().picture(index).convert("RGB").save(tmp_path / f"{index:03}.png")
    files = [str(tmp_path / f"{index:03}.png") for index in test.indices]
    assert torch.equal(predict(plan, net, files)[1], expected)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["missing.png"], "INPUT=missing.png: there is no such file or folder; "),
        (["small.npy"], "INPUT=small.npy: the run's transform or module does not take it (mat1 and mat2 shapes "),
        (["empty.npy"], "INPUT=empty.npy: there is no picture and no row in it; "),
        (["text.png"], "data: text.png is no image that can be read"),
        (["small.npy", "device=toaster"], "device=toaster: "),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(
    predicted: Callable[..., int], words: list[str], sentence: str, capsys: Capture
) -> None:
    np.save("small.npy", np.zeros((2, 1, 5, 5), np.uint8))
    np.save("empty.npy", np.zeros((0, 1, 28, 28), np.uint8))
    Path("text.png").write_text("text")
    assert predicted(*words) == 2
    error = capsys.readouterr().err
    assert error.startswith(sentence)
    assert error.count("\n") == 1


def test_class_names_of_folders_reach_every_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for name, red in (("Käfer", 0), ("cat", 220)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for index in range(10):
            Image.new("RGB", (40, 30), (red, 220 - red, index)).save(tmp_path / "images" / name / f"{index}.png")
    job = ("data=image_folder", f"data.root={tmp_path / 'images'}", "data.size=16", "model=linear", "batch_size=4")
    lockstep.run([*QUIET, *job, "max_epochs=5", "optimizer.lr=0.02", f"hydra.run.dir={tmp_path / 'run'}"])
    plan, _ = load_with_plan(tmp_path / "run")
    assert plan.data.class_names == ("Käfer", "cat")
    with (tmp_path / "run" / "confusion.csv").open() as file:
        assert file.readline() == "true,predicted Käfer,predicted cat\n"
    capsys.readouterr()
    assert main([str(tmp_path / "run"), str(tmp_path / "images")]) == 0
    rows = [*csv.DictReader(capsys.readouterr().out.splitlines())]
    assert {(Path(row["input"]).parent.name, row["class"]) for row in rows} == {("Käfer",) * 2, ("cat",) * 2}
