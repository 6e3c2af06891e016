"""`python -m lockstep.predict`: pictures, arrays and texts, at the command line and in files."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import lockstep
from lockstep import ConfigError, data
from lockstep.inference.inputs import continue_text, read_samples
from lockstep.inference.predictions import predict
from lockstep.inference.saved_run import read_run
from tests.conftest import IN_PROCESS, Command

pytestmark = IN_PROCESS
QUIET = ("logger=none", "threads=1", "max_epochs=1", "strategy.in_process=true", "engine=raw")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    lockstep.run([*QUIET, "model.hidden=[16]", f"hydra.run.dir={folder}"])
    return folder


def test_pictures_and_arrays_of_the_test_split_are_classified_as_in_the_run(run: Path, tmp_path: Path) -> None:
    plan, net = read_run(run)[0], lockstep.load(run)
    images = data.load(plan.data).test.inputs[:100]
    np.savez(tmp_path / "x.npz", x=images.numpy())
    (tmp_path / "pictures").mkdir()
    for index, image in enumerate(images):
        Image.fromarray(image[0].numpy()).save(tmp_path / "pictures" / f"{index:03}.png")
    expected = net(images)
    for name in ("x.npz", "pictures"):
        predictions = predict(plan, net, read_samples(plan, net, [str(tmp_path / name)]))
        assert torch.allclose(predictions.outputs, expected, atol=1e-5)
    rows = predictions.rows()
    assert [row["class"] for row in rows] == [str(label) for label in expected.argmax(1).tolist()]
    assert [row["probability"] for row in rows] == pytest.approx(
        expected.double().softmax(1).amax(1).tolist(), abs=1e-6
    )


def test_the_command_prints_a_table_and_writes_a_file(run: Path, command: Command) -> None:
    np.savez(command.folder / "x.npz", x=np.zeros((22, 1, 28, 28), np.uint8))
    predict_command = (sys.executable, "-m", "lockstep.predict", str(run), "x.npz", "--output")
    ended = command(*predict_command, "p.csv")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.splitlines()[0].split() == ["input", "class", "probability"]
    assert ended.out.endswith("… and 2 more\n\np.csv\n")
    with (command.folder / "p.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert (len(rows), rows[0]["input"]) == (22, "x.npz[0]")
    assert sum(float(rows[0][f"P({label})"]) for label in range(10)) == pytest.approx(1, abs=1e-9)
    command(*predict_command, "p.npz")
    saved = np.load(command.folder / "p.npz")
    assert (saved["outputs"].shape, saved["classes"][3]) == ((22, 10), "3")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["missing.png"], "INPUT=missing.png: there is no such file or folder; "),
        (["wrong.npz"], "INPUT: the net fails for inputs of shape (3,): "),
        (["text.png"], "data: text.png is no image that can be read"),
        (["empty"], "INPUT=empty: there is no picture in it; "),
        (["wrong.npz", "--output", "p.txt"], "--output=p.txt: it is neither .csv nor .npz; "),
        (["wrong.npz", "--device", "toaster"], "device=toaster: "),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(
    run: Path, command: Command, words: list[str], sentence: str
) -> None:
    np.savez(command.folder / "wrong.npz", x=np.zeros((2, 3), np.float32))
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
    plan, net = read_run(tmp_path / "run")[0], lockstep.load(tmp_path / "run")
    assert plan.data.labels == ("Käfer", "cat")
    with (tmp_path / "run" / "confusion.csv").open() as file:
        assert file.readline() == "true,predicted Käfer,predicted cat\n"
    rows = predict(plan, net, read_samples(plan, net, [str(tmp_path / "images")])).rows()
    assert {(Path(str(row["input"])).parent.name, row["class"]) for row in rows} == {("Käfer",) * 2, ("cat",) * 2}


def test_a_text_is_continued_and_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab" * 400)
    words = ("model=char_rnn", "data=text", f"data.file={tmp_path / 'a.txt'}", "data.length=8", "batch_size=4")
    training = ("task=language_modelling", "max_epochs=5", "optimizer.lr=0.01")
    lockstep.run([*QUIET, *words, *training, f"hydra.run.dir={tmp_path}"])
    plan, net = read_run(tmp_path)[0], lockstep.load(tmp_path)
    assert continue_text(plan, net, "ba", length=6) == "babababa"
    with pytest.raises(ConfigError, match="the net knows the characters 'ab' alone"):
        continue_text(plan, net, "abc", length=6)


def test_predict_step_of_a_module_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lockstep.run([*QUIET, "model=example_module", "data=example_module", f"hydra.run.dir={tmp_path}"])
    plan, module = read_run(tmp_path)[0], lockstep.load(tmp_path)
    np.savez(tmp_path / "x.npz", x=np.array([[3.0, 4.0]], np.float32))
    monkeypatch.setattr(type(module), "predict_step", lambda _self, batch, _index: batch.norm(dim=1, keepdim=True))
    [row] = predict(plan, module, read_samples(plan, module, [str(tmp_path / "x.npz")])).rows()
    assert row == {"input": f"{tmp_path / 'x.npz'}[0]", "output 0": 5.0}
