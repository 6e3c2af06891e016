"""`data=csv`: columns, targets and splits of a table, its scale, what is refused, and rows to predict."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import lockstep
from lockstep.base.config_error import ConfigError
from lockstep.command.inference import load
from lockstep.datamodules import CSV
from lockstep.datamodules.tensors import split_rows
from lockstep.predict import main
from tests.conftest import IN_PROCESS
from tests.test_datamodules import tensors

pytestmark = IN_PROCESS


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def table(path: Path, samples: int = 40, named: bool = True) -> tuple[str, np.ndarray[Any, Any]]:
    """Write a table of an id, three columns, one of them constant, and a target; return the columns."""
    rng = np.random.default_rng(0)
    values = rng.normal([1e6, -3.0, 0.1], [10.0, 2.0, 0.0], (samples, 3))
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        rows = csv.writer(file, quoting=csv.QUOTE_ALL)
        rows.writerow(["id", "a", " b", "kind", "c"])
        for number, (a, b, c) in enumerate(values.tolist()):
            kind = ["no", "yes, sir"][b > -3] if named else number % 3 * 10 - 10
            rows.writerow([f"row {number}", a, b, kind, c])
    return str(path), values


def inputs_of(data: CSV, stage: str) -> Tensor:
    """Return the inputs of a batch of all samples in float32, as a module gets them."""
    inputs: Tensor = data.on_after_batch_transfer([*data.datasets[stage].tensors], 0)[0]
    return inputs


def test_columns_are_standardised_by_the_training_rows(tmp_path: Path) -> None:
    file, values = table(tmp_path / "a.csv")
    data, rows = CSV(file, "kind", ignore=["id"], val_size=5, test_size=0.2, split_seed=3), split_rows(40, 5, 0.2, 3)
    splits = tensors(data)
    assert (data.sample_shape, data.num_outputs, data.num_classes, data.class_names) == ((3,), 2, 2, ("no", "yes, sir"))
    assert rows != split_rows(40, 5, 0.2)
    train = values[rows["train"]]
    for stage, places in rows.items():
        expected = (values[places] - train.mean(0)) / np.where([True, True, False], train.std(0), 1)
        assert np.allclose(inputs_of(data, stage), expected, rtol=1e-6, atol=1e-6)
        assert splits[stage][1].tolist() == (values[places, 1] > -3).astype(int).tolist()
    plain = CSV(file, "kind", ignore=["id"], standardize=False)
    plain.setup()
    assert torch.equal(inputs_of(plain, "test"), plain.datasets["test"].tensors[0].float())


def test_integers_are_classes_in_their_order(tmp_path: Path) -> None:
    file, _ = table(tmp_path / "a.csv", named=False)
    data = CSV(file, "kind", ignore=["id"])
    counts = torch.bincount(torch.cat([classes for _, classes in tensors(data).values()]))
    assert (data.class_names, counts.tolist()) == (("-10", "0", "10"), [14, 13, 13])
    numbers = CSV(file, "kind", ignore=["id"], classes=False)
    assert {*tensors(numbers)["train"][1].flatten().tolist()} == {-10.0, 0.0, 10.0}
    assert (numbers.num_classes, numbers.num_outputs, numbers.class_names) == (0, 1, ())


def test_real_targets_stay_and_a_column_splits(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "x;part;y\n1;train;1e3\n2;validation;5\n\n3;train;-2.5\n4;test;0\n")
    data = CSV(file, "y", split="part", delimiter=";")
    splits = {stage: [part.flatten().tolist() for part in split] for stage, split in tensors(data).items()}
    assert splits == {"train": [[1, 3], [1000, -2.5]], "val": [[2], [5]], "test": [[4], [0]]}
    assert data.datasets["train"].tensors[1].shape == (2, 1)


HEAD = "a,b,y\n"
INVALID: dict[str, tuple[str | bytes | None, dict[str, Any]]] = {
    "it is no CSV file in UTF-8 ('utf-8' codec can't decode byte 0xff": (HEAD.encode() + b"\xff", {}),
    "it is no CSV file in UTF-8 (unexpected end of data)": (f'{HEAD}1,2,"3', {}),
    "it is empty; write a table with a header.": ("", {}),
    "line 1: two columns are named 'a'; write": ("a,a,y\n1,2,3", {}),
    "line 1: a column has no name; write a name there, or data.ignore=[''] to": (",b,y\n1,2,3", {}),
    "line 3 has 2 cells, and the first 3; write": (f"{HEAD}1,2,3\n1,2\n", {}),
    "line 3, column b: it is empty; write a number there, or data.ignore=[b] to": (f"{HEAD}1,2,3\n1,,3", {}),
    "line 2, column a: 'red' is not a finite number; write a number there, or": (f"{HEAD}red,2,3", {}),
    "line 2, column b: '2' is no split; write train, val or test there": (f"{HEAD}1,2,3", {"split": "b"}),
    "data.split=b: no row is for training": (f"{HEAD}1,val,3", {"split": "b"}),
    "data.target=z: {file} has no such column; write one of a, b, y.": (f"{HEAD}1,2,3", {"target": "z"}),
}


@pytest.mark.parametrize("sentence", INVALID)
def test_invalid_tables_are_refused(sentence: str, tmp_path: Path) -> None:
    content, options = INVALID[sentence]
    path = tmp_path / "table.csv"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    sentence = sentence.format(file=path)
    expected = sentence if sentence.startswith("data.") else f"data.file={path}: {sentence}"
    with pytest.raises(ConfigError) as raised:
        CSV(str(path), **{"target": "y", "val_size": 0, "test_size": 0, **options}).setup()
    assert str(raised.value).startswith(expected)


@pytest.mark.filterwarnings("ignore")
def test_rows_are_predicted_by_the_scale_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file of the run is gone; the other has no target, and its columns in another order."""
    file, values = table(tmp_path / "a.csv")
    data = CSV(file, "kind", ignore=["id"])
    data.setup()
    job = ("data=csv", f"data.file={file}", "data.target=kind", "data.ignore=[id]", "model=mlp", "model.net.hidden=[4]")
    quiet = (
        "logger=none",
        "threads=1",
        "max_epochs=1",
        "strategy.in_process=true",
        f"hydra.run.dir={tmp_path / 'run'}",
    )
    lockstep.run([*job, *quiet])
    Path(file).unlink()
    lines = ["c,b,other,a", *(f"{c!r},{b!r},x,{a!r}" for a, b, c in (values[:9] + 0.5).tolist())]
    new = write(tmp_path / "new.csv", "\n".join(lines))
    capsys.readouterr()
    assert main([str(tmp_path / "run"), new]) == 0
    printed = [*csv.DictReader(capsys.readouterr().out.splitlines())]
    with torch.no_grad():
        inputs = data.on_after_batch_transfer([torch.from_numpy(values[:9] + 0.5)], 0)[0]
        probabilities, classes = load(tmp_path / "run")(inputs).double().softmax(1).max(1)
    assert [row["input"] for row in printed] == [f"{new}:{line}" for line in range(2, 11)]
    assert [row["class"] for row in printed] == [data.class_names[index] for index in classes]
    assert [float(row["probability"]) for row in printed] == pytest.approx(probabilities.tolist(), abs=1e-6)
    for text, sentence in (
        ("a,c\n1,2", "line 1: it has no column b; write a file with the columns a, b, c."),
        ("a,b,c\n1,2,?", "line 2, column c: '?' is not a finite number; write a number there."),
    ):
        write(Path(new), text)
        assert main([str(tmp_path / "run"), new]) == 2
        assert capsys.readouterr().err == f"INPUT={new}: {sentence}\n"


def test_another_file_gets_the_scale_of_a_checkpoint(tmp_path: Path) -> None:
    """As with `train=false ckpt_path=… data.file=…`: Lightning loads the state after `setup`."""
    (file, _), other = table(tmp_path / "a.csv"), CSV(write(tmp_path / "b.csv", "x,y\n1,no\n2,yes"), "y", test_size=0)
    first, second = CSV(file, "kind", ignore=["id"]), CSV(file, "kind", ignore=["id"], split_seed=1)
    for data in (first, second, other):
        data.setup()
    second.load_state_dict(first.state_dict())
    expected = (second.datasets["val"].tensors[0] - first.means) / first.deviations
    assert torch.equal(inputs_of(second, "val"), expected.float())
    with pytest.raises(ConfigError, match=r"its columns are x, and those of the checkpoint a, b, c; write"):
        other.load_state_dict(first.state_dict())
