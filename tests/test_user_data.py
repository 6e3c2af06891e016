"""Datasets of a user's code, by the keys of a YAML file: seeds, keys that do not exist, errors in the code."""

from typing import Any

import pytest
import torch
from torch import Tensor

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


def inputs_of(data: Datasets) -> Tensor:
    inputs: Tensor = data.datasets["train"].tensors[0]
    return inputs


def test_a_target_draws_under_the_seed() -> None:
    """The generators of the rank are preserved, though a sample is read for its shape."""
    one, same, other = (created("drawn", seed) for seed in (1, 1, 2))
    assert torch.equal(inputs_of(one), inputs_of(same))
    assert not torch.equal(inputs_of(one), inputs_of(other))
    torch.manual_seed(1)
    before = torch.rand(())
    torch.manual_seed(1)
    created("Noisy")
    assert torch.equal(torch.rand(()), before)


def test_a_key_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match=r"^data.num_clases=3: Datasets takes no such argument .did you mean num_cl"):
        created("Noisy", num_clases=3)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        (
            "no_folder",
            r"(?s)^Traceback.*no folder of 3 images\ndata\..*_target_=strange_data.no_folder: it raises",
        ),
        ("Unlabelled", r"(?s)^Traceback.*in __getitem__\n.*KeyError: 'no label'\ndata._target_=lockstep.datamodules.D"),
    ],
)
def test_an_error_of_the_users_code_has_its_lines(target: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        created(target, samples=3, val_size=0, test_size=0)
