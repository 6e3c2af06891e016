"""Datasets of a user's code, by the keys of a YAML file: seeds, keys that do not exist, errors in the code."""

from typing import Any

import pytest
import torch

from lockstep.base.config_error import ConfigError
from lockstep.datamodules import Datasets
from lockstep.engine.loaders.source import create_data
from lockstep.plan import schemas
from tests.conftest import USER_CODE


@pytest.fixture(autouse=True)
def user_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(USER_CODE))


def created(target: str, seed: int = 0, samples: int = 40, **values: Any) -> Datasets:
    """Create data as the keys of a YAML file name it, under the seed of a run."""
    dataset = {"_target_": f"strange_data.{target}", "samples": samples}
    call = {"_target_": "lockstep.datamodules.Datasets", "dataset": dataset, **values}
    data: Datasets = create_data(schemas.Data.from_values("data", call), seed)
    return data


def test_a_target_draws_under_the_seed() -> None:
    """The generators of the rank are preserved, though a sample is read for its shape."""
    one, same, other = (created("drawn", seed).datasets["train"].tensors[0] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    torch.manual_seed(1)
    before = torch.rand(())
    torch.manual_seed(1)
    created("Noisy")
    assert torch.equal(torch.rand(()), before)


@pytest.mark.parametrize(
    ("target", "values", "sentence"),
    [
        (
            "no_folder",
            {},
            r"(?s)^Traceback.*no folder of 40 images\ndata\..*_target_=strange_data.no_folder: it raises",
        ),
        ("Unlabelled", {}, r"(?s)^Traceback.*in __getitem__\n.*KeyError: 'no label'\ndata._target_=lockstep.datam"),
    ],
)
def test_an_error_has_its_key_and_the_lines_of_the_users_code(target: str, values: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        created(target, **values)
