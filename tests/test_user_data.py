"""Datasets: data of a user's as three splits, and what a net needs to know of it."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from lockstep import schemas
from lockstep.config_error import ConfigError
from lockstep.datamodules import Datasets
from lockstep.loaders.loader_source import create_data
from tests.conftest import USER_CODE


@pytest.fixture(autouse=True)
def user_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(USER_CODE))


def created(values: dict[str, Any], seed: int = 0) -> Datasets:
    """Create data as the keys of a YAML file name it, under the seed of a run."""
    call = {"_target_": "lockstep.datamodules.Datasets", **values}
    data: Datasets = create_data(schemas.Data.from_values("data", call), seed)
    return data


NOISY = {"_target_": "strange_data.Noisy", "samples": 40}
BLOBS = {"_target_": "strange_data.blobs", "samples": 40}
SINE = {**BLOBS, "_target_": "strange_data.sine"}
SMALL = {**NOISY, "samples": 5}
COLOURS = ("red", "green", "blue")
DIGITS = tuple("01234567")
FORMS: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, ...], int, tuple[str, ...]]] = {
    "tensors": ({"dataset": BLOBS}, (32, 4, 4), (4,), 3, DIGITS[:3]),
    "shares": ({"dataset": BLOBS, "val_size": 0.25, "test_size": 7}, (23, 10, 7), (4,), 3, DIGITS[:3]),
    "regression": ({"dataset": SINE}, (32, 4, 4), (1,), 1, ()),
    "dataset": ({"dataset": NOISY, "val_size": 0}, (36, 0, 4), (4,), 3, COLOURS),
    "three": ({"train": NOISY, "val": {**NOISY, "samples": 9}, "test": SMALL}, (40, 9, 5), (4,), 3, COLOURS),
    "validation": ({"dataset": {"train": NOISY, "validation": SMALL}}, (40, 5, 0), (4,), 3, COLOURS),
    "no test": ({"train": NOISY}, (40, 0, 0), (4,), 3, COLOURS),
    "classes": ({"dataset": BLOBS, "num_classes": 8}, (32, 4, 4), (4,), 8, DIGITS),
}


@pytest.mark.parametrize("form", FORMS)
def test_sizes_and_shapes_are_known(form: str) -> None:
    values, sizes, shape, outputs, names = FORMS[form]
    data = created(values)
    assert tuple(len(data.datasets.get(stage, ())) for stage in ("train", "val", "test")) == sizes
    assert (data.sample_shape, data.num_outputs, data.class_names) == (shape, outputs, names)
    assert data.num_classes == (0 if form == "regression" else outputs)
    loaders = data.train_dataloader(), data.val_dataloader(), data.test_dataloader()
    assert [len(loader.dataset) if loader else 0 for loader in loaders] == [*sizes]


X, BYTES, TOKENS = torch.zeros(40, 6), torch.zeros(40, 3, 4, dtype=torch.uint8), torch.arange(160).view(40, 4) % 9


@pytest.mark.parametrize(
    ("tensors", "shape", "outputs", "classes"),
    [
        (X, (6,), 6, 0),
        (BYTES, (3, 4), 12, 0),
        (TOKENS, (4,), 9, 0),
        ((TOKENS, TOKENS - (TOKENS == 8).long()), (4,), 9, 9),
        ((X, torch.zeros(40, 2, 3)), (6,), 6, 0),
        ((BYTES, torch.arange(40, dtype=torch.int32)[:, None]), (3, 4), 40, 40),
    ],
    ids=["numbers", "bytes", "tokens", "pairs of tokens", "several numbers", "a column of classes"],
)
def test_forms_of_tensors(tensors: Any, shape: tuple[int, ...], outputs: int, classes: int) -> None:
    """Inputs alone are their own targets: as many outputs as numbers, or as tokens."""
    data = Datasets(tensors)
    assert (data.sample_shape, data.num_outputs, data.num_classes) == (shape, outputs, classes)


def test_a_tuple_is_train_and_test_or_all_three() -> None:
    parts = [TensorDataset(X[:count], X[:count, 0].long()) for count in (20, 9, 4)]
    for chosen, names in ((parts, ["train", "val", "test"]), (parts[:2], ["train", "test"])):
        data = Datasets(tuple(chosen))
        assert {name: len(part) for name, part in data.datasets.items()} == {
            name: len(part) for name, part in zip(names, chosen, strict=True)
        }


def test_a_split_has_every_sample_once_for_any_seed() -> None:
    from tests.user_code.strange_data import blobs

    data, again = (created({"dataset": BLOBS}, seed) for seed in (3, 4))
    rows = torch.cat([dataset.tensors[0] for dataset in data.datasets.values()])
    assert sorted(rows[:, 0].tolist()) == sorted(blobs(40)[0][:, 0].tolist())
    assert torch.equal(inputs_of(again), inputs_of(data))


def inputs_of(data: Datasets) -> Tensor:
    inputs: Tensor = data.datasets["train"].tensors[0]
    return inputs


def test_a_target_draws_under_the_seed() -> None:
    """The generators of the rank are preserved, though a sample is read for its shape."""
    drawn = {"dataset": {**BLOBS, "_target_": "strange_data.drawn"}}
    one, same, other = (created(drawn, seed) for seed in (1, 1, 2))
    assert torch.equal(inputs_of(one), inputs_of(same))
    assert not torch.equal(inputs_of(one), inputs_of(other))
    torch.manual_seed(1)
    before = torch.rand(())
    torch.manual_seed(1)
    created({"dataset": NOISY})
    assert torch.equal(torch.rand(()), before)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"val_size": 1.5},
            "data.val_size=1.5: it must be a number of samples, or a share below 1; write data.val_siz",
        ),
        ({"test_size": -1}, "data.test_size=-1: it must be a number of samples, or a share below 1"),
        ({"val_size": 40}, "data.val_size=40: nothing is left to train on; write less, or more data."),
        ({"num_classes": 1}, "data.num_classes=1: it must be 2 or more; write data.num_classes=10."),
        ({"num_clases": 3}, "data.num_clases=3: Datasets takes no such argument (did you mean num_classes?)"),
        ({"loader": {"batch_size": 8}}, "data.loader.batch_size=8: the run determines it; write nothing in its place"),
        ({"loader": {"num_worker": 1}}, "data.loader={num_worker:1}: DataLoader.__init__() got an unexpected keyword"),
        (
            {"loader": {"num_workers": 1, "multiprocessing_context": "x"}},
            "data.loader={num_workers:1,multiprocessing_context:x}: multiprocessing_context option should specify a",
        ),
        ({"target_key": "y"}, "data.target_key=y: it needs the key of the inputs; write data.input_key=KEY beside it."),
        ({"dataset": 3}, "data.dataset=int: it cannot be divided in train, val and test; write the path of what"),
        ({"dataset": None}, "data.dataset is missing, and so is data.train; write data.dataset={_target_:PATH}."),
        (
            {"dataset": {"train": NOISY, "valid": NOISY}},
            "data.dataset=train, valid: these are other splits; write tr",
        ),
        ({"dataset": {"_target_": "builtins.list", "_args_": [[0.5, 2]]}}, "data.dataset=list: it cannot be divided"),
    ],
)
def test_invalid_values_are_rejected_in_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}") as refused:
        created({"dataset": NOISY, **values})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("no_folder", r"(?s)^Traceback.*no folder of 3 images\ndata._target_=lockstep.datamodules.Datasets: it raises"),
        ("Unlabelled", r"(?s)^Traceback.*in __getitem__\n.*KeyError: 'no label'\ndata._target_=lockstep.datamodules.D"),
    ],
)
def test_an_error_of_the_users_code_has_its_lines(target: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as raised:
        created({"dataset": {"_target_": f"strange_data.{target}", "samples": 3}})
    assert "lockstep/" not in str(raised.value)
