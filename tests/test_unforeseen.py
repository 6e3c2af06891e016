import sys

import pytest

from lockstep.command_line.compose import compose_job
from lockstep.command_line.hydra_errors import errors_as_config_errors
from lockstep.config_error import ConfigError
from tests.conftest import ROOT, Command

LONG = "seed=" + "9" * 5000
"""Python reads no number of so many digits: an error that neither Hydra nor this project foresaw."""


def stumbles(overrides: list[str]) -> None:
    if "b=2" in overrides:
        raise KeyError("a bug")


def test_a_bug_stays_the_cause_and_the_override_is_named() -> None:
    with pytest.raises(ConfigError) as raised, errors_as_config_errors(["a=1", "-m", "b=2"], stumbles):
        stumbles(["a=1", "b=2"])
    assert str(raised.value).startswith("b=2: this cannot be composed (KeyError: 'a bug'); write ")
    assert isinstance(raised.value.__cause__, KeyError)
    assert raised.value.__cause__.__traceback__ is not None


def test_without_a_culprit_all_are_named() -> None:
    with (
        pytest.raises(ConfigError, match=r"^a=1 b=2: this cannot be composed"),
        errors_as_config_errors(["a=1", "b=2"], compose_job),
    ):
        raise RecursionError("deep")


def test_a_refusal_stays_as_it_is() -> None:
    with pytest.raises(ConfigError, match=r"^mine$"), errors_as_config_errors(["a=1"], stumbles):
        raise ConfigError("mine")


def test_on_the_command_line(command: Command) -> None:
    ended = command.train(LONG)
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1), ended.err
    assert "Traceback" not in ended.err
    full = command(sys.executable, str(ROOT / "train.py"), LONG, HYDRA_FULL_ERROR="1")
    assert "Traceback (most recent call last)" in full.err
    assert "Exceeds the limit" in full.err
    assert not list(command.folder.iterdir())
