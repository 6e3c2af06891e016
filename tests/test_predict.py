"""`python -m lockstep.predict`: pictures and arrays, at the command line and in files."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision.transforms import v2

import lockstep
from lockstep import ConfigError
from lockstep.command.inference import load_with_plan
from lockstep.datamodules import Digits
from lockstep.datamodules.datasets import Datasets
from lockstep.predict import Predictions, predict
from tests.conftest import IN_PROCESS, Command

pytestmark = IN_PROCESS


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


class Bytes(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3,), 100 + index, dtype=torch.uint8), index % 2


class BytesData(LightningDataModule):
    def train_dataloader(self) -> DataLoader[tuple[torch.Tensor, int]]:
        return DataLoader(Bytes(), batch_size=8)


class OfBytes(LightningModule):
    """A module that divides bytes itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        assert inputs.dtype == torch.uint8
        outputs: torch.Tensor = self.layer(inputs / 255)
        return outputs

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


DIVIDED = {"_target_": "lockstep.datamodules.Datasets", "batch_size": 8}
ADAM = {"_target_": "torch.optim.Adam", "_partial_": True, "lr": 0.001}
CLASSIFIER = {"_target_": "lockstep.models.Classifier", "optimizer": ADAM}
QUIET = ("logger=none", "threads=1", "max_epochs=1", "strategy.in_process=true")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    lockstep.run([*QUIET, "model.net.hidden=[16]", f"hydra.run.dir={folder}"])
    return folder


def test_pictures_and_arrays_of_the_test_split_are_classified_as_in_the_run(run: Path, tmp_path: Path) -> None:
    plan, module = load_with_plan(run)
    images = Digits().load()["test"][0][:100]
    np.savez(tmp_path / "x.npz", x=images.numpy())
    (tmp_path / "pictures").mkdir()
    for index, image in enumerate(images):
        Image.fromarray(image[0].numpy()).save(tmp_path / "pictures" / f"{index:03}.png")
    expected = module((images / 255 - Digits.mean) / Digits.std)
    for name in ("x.npz", "pictures"):
        predictions = predict(plan, module, [str(tmp_path / name)])
        assert torch.allclose(predictions.outputs, expected, atol=1e-5)
    rows = predictions.rows()
    assert [row["class"] for row in rows] == [str(label) for label in expected.argmax(1).tolist()]
    assert [row["probability"] for row in rows] == pytest.approx(
        expected.double().softmax(1).amax(1).tolist(), abs=1e-6
    )


def test_the_command_prints_a_table_and_writes_a_file(run: Path, command: Command) -> None:
    np.savez(command.folder / "x.npz", x=np.zeros((22, 1, 28, 28), np.uint8))
    ended = command(sys.executable, "-m", "lockstep.predict", str(run), "x.npz", "--output", "p.csv")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.splitlines()[0].split() == ["input", "class", "probability"]
    assert ended.out.endswith("… of 22 rows and 13 columns; --output FILE.csv has all\n\np.csv\n")
    with (command.folder / "p.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert (len(rows), rows[0]["input"]) == (22, "x.npz[0]")
    assert sum(float(rows[0][f"P({label})"]) for label in range(10)) == pytest.approx(1, abs=1e-9)
    Predictions(["a", "b"], torch.zeros(2, 10), tuple("0123456789")).save(command.folder / "p.npz")
    saved = np.load(command.folder / "p.npz")
    assert (saved["outputs"].shape, saved["classes"][3]) == ((2, 10), "3")


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
    predictions = predict(plan, net, files)
    assert torch.equal(predictions.outputs, expected)
    assert predictions.rows()[0]["class"] == Pictures.classes[int(expected[0].argmax())]


class PerPixel(nn.Conv2d):
    def __init__(self, num_outputs: int) -> None:
        super().__init__(1, num_outputs, 3, padding=1)


def test_classes_of_pixels_in_pictures_of_another_size(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 9, 9), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", x=pixels, y=(pixels > 99).astype(np.int64))
    words = ("data=npz", f"data.file={tmp_path / 'data.npz'}", "batch_size=8", f"hydra.run.dir={tmp_path}")
    lockstep.run([*QUIET, *words], model=CLASSIFIER | {"net": {"_target_": f"{__name__}.PerPixel"}})
    plan, module = load_with_plan(tmp_path)
    np.save(tmp_path / "x.npy", np.zeros((2, 1, 20, 30), np.uint8))
    assert predict(plan, module, [str(tmp_path / "x.npy")]).outputs.shape == (2, 2, 20, 30)
    Image.fromarray(pixels[0]).save(tmp_path / "picture.png")
    predictions = predict(plan, module, [str(tmp_path / "picture.png")])
    assert torch.equal(predictions.outputs, module(torch.from_numpy(pixels[:1, None]) / 255))
    assert len(predictions.rows()[0]) == 1 + 2 * 9 * 9, "no probabilities of classes"
    (tmp_path / "data.npz").unlink()
    assert lockstep.load(tmp_path).net.weight.shape == (2, 1, 3, 3)
    with pytest.raises(ConfigError, match="there is no such path"):
        predict(plan, module, [str(tmp_path / "picture.png")])


def test_a_picture_is_read_where_the_data_has_inputs_alone(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 9, 9), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", x=pixels)
    words = ("model=autoencoder", "model.net.hidden=[4]", "data=npz", f"data.file={tmp_path / 'data.npz'}")
    lockstep.run([*QUIET, *words, "batch_size=8", f"hydra.run.dir={tmp_path}"])
    plan, module = load_with_plan(tmp_path)
    Image.fromarray(pixels[0]).save(tmp_path / "picture.png")
    predictions = predict(plan, module, [str(tmp_path / "picture.png")])
    assert torch.equal(predictions.outputs, module(torch.from_numpy(pixels[:1, None]) / 255))


def test_a_module_gets_the_bytes_of_its_dataset(tmp_path: Path) -> None:
    lockstep.run([*QUIET, "batch_size=8", f"hydra.run.dir={tmp_path}"], model=OfBytes, data=BytesData)
    (plan, module), inputs = load_with_plan(tmp_path), Bytes()[7][0]
    np.save(tmp_path / "x.npy", inputs[None].numpy())
    [output] = predict(plan, module, [str(tmp_path / "x.npy")]).outputs
    assert torch.equal(output, module(inputs[None])[0])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["missing.png"], "INPUT=missing.png: there is no such file or folder; "),
        (["wrong.npz"], "INPUT=wrong.npz[0]: the run's transform or module does not take it (mat1 and mat2 shapes "),
        (["small.npy"], "INPUT=small.npy[0]: the run's transform or module does not take it (mat1 and mat2 shapes "),
        (["empty.npy"], "INPUT=empty.npy: there is no picture and no row in it; "),
        (["text.png"], "data: text.png is no image that can be read"),
        (["empty"], "INPUT=empty: there is no picture and no row in it; "),
        (["wrong.npz", "--output", "p.txt"], "--output=p.txt: it is neither .csv nor .npz; "),
        (["wrong.npz", "--device", "toaster"], "device=toaster: "),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(
    run: Path, command: Command, words: list[str], sentence: str
) -> None:
    np.savez(command.folder / "wrong.npz", x=np.zeros((2, 3), np.float32))
    np.save(command.folder / "small.npy", np.zeros((2, 1, 5, 5), np.uint8))
    np.save(command.folder / "empty.npy", np.zeros((0, 1, 28, 28), np.uint8))
    (command.folder / "text.png").write_text("text")
    (command.folder / "empty").mkdir()
    ended = command(sys.executable, "-m", "lockstep.predict", str(run), *words)
    assert ended.status == 2
    assert ended.err.startswith(sentence)
    assert ended.err.count("\n") == 1


def test_class_names_of_folders_reach_every_place(tmp_path: Path) -> None:
    for name, red in (("Käfer", 0), ("cat", 220)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for index in range(10):
            Image.new("RGB", (40, 30), (red, 220 - red, index)).save(tmp_path / "images" / name / f"{index}.png")
    job = ("data=image_folder", f"data.root={tmp_path / 'images'}", "data.size=16", "model=linear", "batch_size=4")
    lockstep.run([*QUIET, *job, "max_epochs=5", "optimizer.lr=0.02", f"hydra.run.dir={tmp_path / 'run'}"])
    plan, net = load_with_plan(tmp_path / "run")
    assert plan.data.class_names == ("Käfer", "cat")
    with (tmp_path / "run" / "confusion.csv").open() as file:
        assert file.readline() == "true,predicted Käfer,predicted cat\n"
    rows = predict(plan, net, [str(tmp_path / "images")]).rows()
    assert {(Path(str(row["input"])).parent.name, row["class"]) for row in rows} == {("Käfer",) * 2, ("cat",) * 2}


def test_predict_step_of_a_module_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lockstep.run([*QUIET, "model=example_module", "data=example_module", f"hydra.run.dir={tmp_path}"])
    plan, module = load_with_plan(tmp_path)
    np.savez(tmp_path / "x.npz", x=np.array([[3.0, 4.0]], np.float32))
    monkeypatch.setattr(type(module), "predict_step", lambda _self, batch, _index: batch.norm(dim=1, keepdim=True))
    [row] = predict(plan, module, [str(tmp_path / "x.npz")]).rows()
    assert row == {"input": f"{tmp_path / 'x.npz'}[0]", "output 0": 5.0}
