"""A user's data as three splits, and the sizes that a plan needs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lockstep.data.tensors import Split
from lockstep.data.user_data import create_data, describe, load

from lockstep.config_error import ConfigError
from lockstep.schemas import DataFacts, UserData
from tests.conftest import MakeUserPlan

USER_CODE = Path(__file__).parent / "user_code"


@pytest.fixture(autouse=True)
def user_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(USER_CODE))


def choice(**values: Any) -> UserData:
    """Return the data of a YAML file's keys."""
    return UserData.from_values("data", values)


def described(values: dict[str, Any]) -> DataFacts:
    data = choice(**values)
    return describe(data, create_data(data, 0))


NOISY = {"_target_": "strange_data.Noisy", "samples": 40}
BLOBS = {"_target_": "strange_data.blobs", "samples": 40}
SMALL = {**NOISY, "samples": 5}
FORMS: dict[str, tuple[dict[str, Any], tuple[int, int, int], tuple[int, ...], int, int]] = {
    "tensors": ({"dataset": BLOBS}, (32, 4, 4), (4,), 3, 3),
    "shares": ({"dataset": BLOBS, "split": {"val": 0.25, "test": 7}}, (23, 10, 7), (4,), 3, 3),
    "regression": ({**BLOBS, "_target_": "strange_data.sine"}, (32, 4, 4), (1,), 1, 0),
    "dataset": ({"dataset": NOISY, "split": {"val": 0}}, (36, 0, 4), (4,), 3, 3),
    "three": ({"train": NOISY, "val": {**NOISY, "samples": 9}, "test": SMALL}, (40, 9, 5), (4,), 3, 3),
    "validation": ({"train": NOISY, "validation": SMALL}, (40, 5, 0), (4,), 3, 3),
    "no test": ({"train": NOISY}, (40, 0, 0), (4,), 3, 3),
    "classes": ({"dataset": BLOBS, "classes": 8}, (32, 4, 4), (4,), 8, 8),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_plan_knows_sizes_and_shapes(form: str) -> None:
    values, sizes, shape, outputs, classes = FORMS[form]
    names = () if BLOBS in values.values() or classes == 0 else ("red", "green", "blue")
    assert described(values) == DataFacts(*sizes, classes, outputs, shape, class_names=names)


def test_a_split_has_every_sample_once_for_any_seed() -> None:
    from tests.user_code.strange_data import blobs

    data, again = (load(choice(**BLOBS), seed) for seed in (3, 4))
    assert isinstance(data.train, Split)
    rows = torch.cat([data.train.inputs, data.val.inputs, data.test.inputs])
    assert sorted(rows[:, 0].tolist()) == sorted(blobs(40)[0][:, 0].tolist())
    assert torch.equal(again.train.inputs, data.train.inputs)


def test_a_target_draws_under_the_seed() -> None:
    """The generators of the rank are preserved."""
    one, same, other = (load(choice(**{**BLOBS, "_target_": "strange_data.drawn"}), seed) for seed in (1, 1, 2))
    assert torch.equal(one.train.inputs, same.train.inputs)
    assert not torch.equal(one.train.inputs, other.train.inputs)
    torch.manual_seed(1)
    before = torch.rand(())
    torch.manual_seed(1)
    load(choice(**BLOBS), 0)
    assert torch.equal(torch.rand(()), before)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"split": {"valid": 3}}, r"split={valid:3}: it takes val and test, in samples or as a share below 1; write "),
        ({"split": {"val": 1.5}}, r"it takes val and test, in samples or as a share below 1; write data"),
        ({"split": 3}, r"data.split=3: it takes val and test"),
        ({"classes": 1}, r"data.classes=1: it must be 2 or more; write data"),
        ({"clases": 3}, r"data.clases=3: there is no such key .did you mean data.classes"),
        ({"loader": {"batch_size": 8}}, r"loader.batch_size=8: the run determines it; write nothing"),
        ({"loader": 2}, r"loader=2: it is a group of keys"),
        ({"targets": "label"}, r"data.targets=label: it needs the key of the inputs; write data.inputs=KEY beside it"),
        ({"inputs": ""}, r"data.inputs=: it is a key of each sample"),
        ({"dataset": 3}, r"data.dataset=3: it is a target; write data.dataset={_target_:PATH}"),
    ],
)
def test_invalid_settings(settings: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        choice(**{"dataset": NOISY, **settings})


def test_settings_of_a_flat_target() -> None:
    """A user's target has its own argument `split`; Lockstep's data sets do not."""
    assert choice(_target_="datasets.load_dataset", split="train").arguments == {"split": "train"}
    text = choice(_target_="lockstep.data.text.text", length=8, split={"val": 3})
    assert (text.split, text.arguments) == ({"val": 3}, {"length": 8})


def test_former_names_of_keys(make_user_plan: MakeUserPlan, capsys: pytest.CaptureFixture[str]) -> None:
    """A configuration of version 0.1, where settings stood beside the target."""
    for values in (BLOBS, {"dataset": BLOBS}):
        data = choice(**values, _split_={"val": 3}, _loader_={"num_workers": 1}, _classes_=8)
        assert (data.split, data.loader, data.num_classes) == ({"val": 3}, {"num_workers": 1}, 8)
        assert data.arguments == {"samples": 40}
        renamed = [line.partition(",")[0] for line in capsys.readouterr().err.splitlines()]
        assert renamed == [f"data._{name}_: write data.{name}" for name in ("split", "loader", "classes")]
    plan = make_user_plan("model=regressor", "data=stream", "loss_reduction=as_is")
    assert plan.loss_reduction == "none"
    assert capsys.readouterr().err.startswith("loss_reduction=as_is: write loss_reduction=none; ")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"train": NOISY, "valid": NOISY}, "it makes train, valid; write train, val and test"),
        ({"train": NOISY, "loader": {"num_worker": 1}}, r"loader.num_worker=1: DataLoader takes no such argument"),
        (
            {"train": NOISY, "loader": {"num_workers": 1, "multiprocessing_context": "x"}},
            r"multiprocessing_context option should specify a valid start method",
        ),
        ({"train": {"_target_": "builtins.list", "_args_": [[[0.5, 2]]]}}, r"it makes a list that cannot be split"),
        (
            {"train": {"_target_": "strange_data.no_folder", "samples": 3}},
            r"(?s)^Traceback.*no folder of 3 images\ndata.train._target_=strange_data.no_folder: it raises this when",
        ),
        (
            {"_target_": "strange_data.Unlabelled", "samples": 40},
            r"(?s)^Traceback.*KeyError: 'no label'\ndata._target_=strange_data.Unlabelled: a sample of it raises",
        ),
        (
            {"_target_": "torch.randn", "_args_": [30, 3]},
            r"a batch of it is \(Tensor \(1, 3\)\), and a plain net is trained on",
        ),
    ],
)
def test_invalid_data_is_rejected(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        described(values)
