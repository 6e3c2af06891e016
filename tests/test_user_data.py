"""A user's data as three splits, and the sizes that a plan needs."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.config_error import ConfigError
from lockstep.data.tensors import TensorData
from lockstep.data.user_data import describe, load
from lockstep.schemas import OwnData

OWN = Path(__file__).parent / "own_code"


@pytest.fixture(autouse=True)
def own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(OWN))


def choice(**values: Any) -> OwnData:
    """Of a YAML file's keys; `target` is `_target_`."""
    return OwnData(**OwnData.of({key.replace("target", "_target_"): value for key, value in values.items()}))


NOISY = {"_target_": "strange_data.Noisy", "samples": 40}
BLOBS = {"target": "strange_data.blobs", "samples": 40}
FORMS: dict[str, tuple[dict[str, Any], tuple[int, int, int], list[int], int, int]] = {
    "tensors": (BLOBS, (32, 4, 4), [4], 3, 3),
    "shares": ({**BLOBS, "_split_": {"val": 0.25, "test": 7}}, (23, 10, 7), [4], 3, 3),
    "regression": ({**BLOBS, "target": "strange_data.sine"}, (32, 4, 4), [1], 1, 0),
    "dataset": ({**BLOBS, "target": "strange_data.Noisy", "_split_": {"val": 0}}, (36, 0, 4), [4], 3, 3),
    "three": ({"train": NOISY, "val": {**NOISY, "samples": 9}, "test": {**NOISY, "samples": 5}}, (40, 9, 5), [4], 3, 3),
    "validation": ({"target": "builtins.dict", "train": NOISY, "validation": NOISY}, (40, 40, 0), [4], 3, 3),
    "no test": ({"train": NOISY}, (40, 0, 0), [4], 3, 3),
    "classes": ({**BLOBS, "_classes_": 8}, (32, 4, 4), [4], 8, 8),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_plan_knows_sizes_and_shapes(form: str) -> None:
    values, sizes, shape, outputs, classes = FORMS[form]
    expected: dict[str, Any] = dict(zip(("train_samples", "val_size", "test_size"), sizes, strict=True))
    expected |= {"shape": shape, "outputs": outputs, "classes": classes, "parts": []}
    assert describe(choice(**values), 0) == expected


def test_a_split_has_every_sample_once_for_any_seed() -> None:
    from tests.own_code.strange_data import blobs

    data, again = (load(choice(target="strange_data.blobs", samples=40), seed) for seed in (3, 4))
    assert isinstance(data, TensorData)
    rows = torch.cat([data.train.inputs, data.val.inputs, data.test.inputs])
    assert sorted(rows[:, 0].tolist()) == sorted(blobs(40)[0][:, 0].tolist())
    assert torch.equal(again.train.inputs, data.train.inputs)


def test_a_sine_is_a_column() -> None:
    data = load(choice(target="strange_data.sine", samples=40), 0)
    assert isinstance(data, TensorData)
    assert data.train.targets.shape == (32, 1)


def test_a_target_draws_under_the_seed() -> None:
    """The generators of the rank are preserved."""
    one, same, other = (load(choice(target="strange_data.drawn", samples=12), seed) for seed in (1, 1, 2))
    assert torch.equal(one.train.inputs, same.train.inputs)
    assert not torch.equal(one.train.inputs, other.train.inputs)
    torch.manual_seed(1)
    before = torch.rand(())
    torch.manual_seed(1)
    load(choice(target="strange_data.blobs", samples=12), 0)
    assert torch.equal(torch.rand(()), before)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"train": NOISY, "valid": NOISY}, "cannot be split in train, val and test; write train, val and test"),
        (
            {"train": NOISY, "_split_": {"valid": 3}},
            r"data._split_.valid=3: it takes val and test, samples or shares",
        ),
        ({"train": NOISY, "_classes_": 1}, "data._classes_=1: it is the number of classes"),
        ({"train": NOISY, "_loader_": {"num_worker": 1}}, r"num_worker=1: DataLoader takes no such argument"),
        (
            {"train": NOISY, "_loader_": {"num_workers": "x"}},
            r"^data._loader_.num_workers=x: it takes a whole number; write data._loader_.num_workers=1, say.$",
        ),
        ({"train": NOISY, "_loader_": {"num_workers": -1}}, r"^data._loader_.num_workers=-1: it must be 0 or more"),
        ({"train": NOISY, "_loader_": {"num_workers": None}}, r"num_workers=null: it takes a whole number"),
        ({"train": NOISY, "_loader_": {"pin_memory": 7}}, r"^data._loader_.pin_memory=7: it takes true or false"),
        (
            {"train": NOISY, "_loader_": {"collate_fn": "mine.stack"}},
            r"collate_fn=mine.stack: it is a function, .*; write {_target_: mine.stack, _partial_: true}.$",
        ),
        (
            {"train": NOISY, "_loader_": {"multiprocessing_context": "forc"}},
            r"multiprocessing_context=forc: there is no such way \(did you mean fork\?\)",
        ),
        ({"train": {"_target_": "builtins.list", "_args_": [[[0.5, 2]]]}}, r"it makes a list that cannot be split"),
        (
            {"train": {"_target_": "strange_data.no_folder", "samples": 3}},
            r"(?s)^Traceback.*no folder of 3 images\ndata.train._target_=strange_data.no_folder: it raises this when",
        ),
        (
            {"target": "strange_data.Unlabelled", "samples": 40},
            r"(?s)^Traceback.*KeyError: 'no label'\ndata._target_=strange_data.Unlabelled: a sample of it raises",
        ),
        (
            {"target": "torch.randn", "_args_": [30, 3]},
            r"a batch of it is \(Tensor \(1, 3\)\), and a plain net is trained on",
        ),
    ],
)
def test_invalid_data_is_rejected(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        describe(choice(**values), 0)
