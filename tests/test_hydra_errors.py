"""What Hydra, or a flag, refuses becomes one sentence that names the override."""

import sys
from dataclasses import fields

import pytest

from lockstep import schemas
from lockstep.command_line.compose import compose_job
from lockstep.command_line.hydra_errors import errors_as_config_errors
from lockstep.command_line.overrides import check_groups, known_keys
from lockstep.config_error import ConfigError
from lockstep.job import planning
from lockstep.schemas.synonyms import SYNONYMS, TRAINER, UNSUPPORTED
from tests.conftest import ROOT, Command

LONG = "seed=" + "9" * 5000
"""Python reads no number of so many digits: an error that neither Hydra nor Lockstep expects."""
NO_OPTION = "a group takes the name of one of its options; write"
EXPLAINED = [
    ("devicez=2", "devicez=2: there is no such key (did you mean devices?); write devices=2."),
    ("optimizer.learning_rate=1", "optimizer.learning_rate=1: there is no such key"),
    ("optimizer.lrr=1", "did you mean optimizer.lr?"),
    ("strategy=dpp", "strategy=dpp: there is no such option (did you mean ddp?); write strategy=ddp, or another of"),
    ("model=zzz", "model=zzz: there is no such option; write one of char_rnn, cnn, example, example_module, lenet, "),
    ("devices=1,2", "devices=1,2: several values make a sweep; write -m in front of them, or devices=1."),
    ("model.dropout=0.1", "model.dropout=0.1: the chosen model has no such key; write model=… of an option with it."),
    ("model.name=cnn", "model.name=cnn: an option is chosen by its group; write model=cnn."),
    ("devices", "devices: this cannot be parsed; write KEY=VALUE"),
    (
        "ckpt_path=a b=c",
        "ckpt_path=a b=c: this cannot be parsed; write KEY=VALUE, or \"KEY='VALUE'\" if it is unus",
    ),
    ("=1", "=1: this has no key; write KEY=VALUE."),
    ("+experiment=toy_mlp", "+experiment=toy_mlp: the key exists already; write experiment=toy_mlp, without the plus"),
    ("+devices=2", "+devices=2: the key exists already; write devices=2, without the plus sign."),
    ("model=[true]", f"model=[true]: {NO_OPTION} one of char_rnn, cnn, "),
    ("experiment=[1,2]", f"experiment=[1,2]: {NO_OPTION} one of amp_recipe"),
    ("engine=[raw,both]", f"engine=[raw,both]: {NO_OPTION} engine=raw."),
    ("strategy=null", f"strategy=null: {NO_OPTION} one of ddp, ddp_spawn"),
    ("logger=[csv,cvs]", "logger=cvs: there is no such option (did you mean csv?); write logger=csv, or another of"),
    ("logger=[]", f"logger=[]: {NO_OPTION} one of csv, mlflow, none,"),
    ("logger.project=a", "logger.project=a: there is no such key (did you mean logger.wandb.project?); write logge"),
    ("logger.wandb.project=a", "logger.wandb.project=a: the chosen logger has no such key; write logger=… of an"),
    ("logger=${ranks_of:ddp,2}", f"logger=${{ranks_of:ddp,2}}: {NO_OPTION}"),
    ("name=${nope}", "name=${nope}: Interpolation key 'nope' not found"),
    (LONG, "99999: this cannot be composed (ValueError: Exceeds the limit"),
    ("x" * 300 + "=[1]", "xx=[1]: this cannot be composed (OSError: [Errno 36] File name too long"),
    ("max_steps=5", "max_steps=5: there is no such key, it is trainer.max_steps here; write trainer.max_steps=5."),
    ("trainer.strategy=ddp", "it is strategy here; write strategy=ddp."),
    ("trainer.min_steps=2", "write max_epochs=N."),
    ("lr=0.1", "lr=0.1: there is no such key, it is optimizer.lr here; write optimizer.lr=0.1."),
    ("dropout=0.1", "dropout=0.1: there is no such key (did you mean model.dropout?); write model.dropout=0.1."),
    ("optimizer.foo=1", "optimizer.foo=1: there is no such key; write one that python train.py --help lists."),
    ("~ckpt_path", "~ckpt_path: a key cannot be removed; write ckpt_path=VALUE."),
]


@pytest.mark.parametrize(("override", "sentence"), EXPLAINED, ids=[case[0][:40] for case in EXPLAINED])
def test_an_error_of_hydra_becomes_one_sentence(override: str, sentence: str) -> None:
    words = ["seed=1", override]
    with pytest.raises(ConfigError) as raised, planning(words):
        compose_job(words)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "seed=1:" not in str(raised.value)


def test_groups_may_be_lists_where_hydra_accepts_them() -> None:
    check_groups(
        ["engine=[raw]", "logger=csv", "logger=csv,[csv,mine]", "experiment=[one,two]", "logger=[", "model={}"]
    )
    with pytest.raises(ConfigError, match=NO_OPTION):
        check_groups(["engine=raw,[raw,both]"])


def fail_at_b(overrides: list[str]) -> None:
    if "b=2" in overrides:
        raise KeyError("a bug")


def test_a_bug_stays_the_cause_and_the_override_is_named() -> None:
    with pytest.raises(ConfigError) as raised, errors_as_config_errors(["a=1", "-m", "b=2"], fail_at_b):
        fail_at_b(["a=1", "b=2"])
    assert str(raised.value).startswith("b=2: this cannot be composed (KeyError: 'a bug'); write ")
    assert isinstance(raised.value.__cause__, KeyError)
    assert raised.value.__cause__.__traceback__ is not None


def test_an_error_that_no_override_raises_alone_names_all() -> None:
    sentence = r"^a=1 b=2: this cannot be composed"
    with pytest.raises(ConfigError, match=sentence), errors_as_config_errors(["a=1", "b=2"], compose_job):
        raise RecursionError("deep")


def test_a_config_error_is_passed_on() -> None:
    with pytest.raises(ConfigError, match=r"^mine$"), errors_as_config_errors(["a=1"], fail_at_b):
        raise ConfigError("mine")


def test_the_command_shows_tracebacks_on_request(command: Command) -> None:
    ended = command.train(LONG)
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1), ended.err
    assert "Traceback" not in ended.err
    full = command(sys.executable, str(ROOT / "train.py"), LONG, HYDRA_FULL_ERROR="1")
    assert "Traceback (most recent call last)" in full.err
    assert "Exceeds the limit" in full.err
    assert not list(command.folder.iterdir())


@pytest.mark.parametrize("name", [*SYNONYMS, *UNSUPPORTED])
def test_no_name_that_is_usual_elsewhere_is_a_key(name: str) -> None:
    assert name not in known_keys()
    assert SYNONYMS.get(name, "seed") in {*known_keys(), "hydra.run.dir"}


def test_all_keys_of_the_trainer_are_synonyms() -> None:
    assert {*TRAINER} == {field.name for field in fields(schemas.Trainer)}


def test_known_keys_are_all_keys() -> None:
    assert {"devices", "strategy", "model.hidden", "optimizer.momentum", "experiment"} <= set(known_keys())
