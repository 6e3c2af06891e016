"""What Hydra, or a flag, refuses becomes one sentence that names the override."""

import sys

import pytest
import yaml

from lockstep.base.config_error import ConfigError
from lockstep.base.files import CONF
from lockstep.command.compose import OPTIONS, compose_job, without_plus
from lockstep.command.hydra_errors import planning
from lockstep.plan.schemas.former import synonym
from tests.conftest import ROOT, Command, MakePlan

LONG = "seed=" + "9" * 5000
"""Python reads no number of so many digits: an error that neither Hydra nor Lockstep expects."""
EXPLAINED = [
    ("devicez=2", "devicez=2: there is no such key (did you mean devices?); write devices=VALUE."),
    ("optimizer.foo=1", "optimizer.foo=1: there is no such key; write +optimizer.foo=VALUE to add this argument."),
    ("model=example model.net.widht=3", "no such key (did you mean model.net.width?); write model.net.width=VALUE."),
    ("strategy=dpp", "strategy=dpp: there is no such option (did you mean dp?); write strategy=dp, or another of"),
    ("logger=[csv,cvs]", "logger=cvs: there is no such option (did you mean csv?); write logger=csv, or another of"),
    ("devices=1,2", "are a list or a sweep; write -m devices=1,2 to run a job for each, or devices=[1,2] for a list."),
    ("+devices=2", "+devices=2: Could not append to config. An item is already at 'devices'. Either remove + prefix"),
    ("data.batch_size=8", "data.batch_size=8: the size of a batch is a key of the run; write batch_size=8."),
    (LONG, "99999: this cannot be composed (ValueError: Exceeds the limit"),
]


@pytest.mark.parametrize(("override", "sentence"), EXPLAINED, ids=[case[0][:40] for case in EXPLAINED])
def test_an_error_of_hydra_becomes_one_sentence(override: str, sentence: str) -> None:
    words = [override] if len(override) > 99 else override.split(" ")
    with pytest.raises(ConfigError) as raised, planning(words):
        compose_job(words)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_bug_stays_the_cause() -> None:
    with pytest.raises(ConfigError) as raised, planning(["a=1", "-m", "b=2"]):
        raise KeyError("a bug")
    assert str(raised.value) == "a=1 b=2: this cannot be composed (KeyError: 'a bug')."
    assert isinstance(raised.value.__cause__, KeyError)
    assert raised.value.__cause__.__traceback__ is not None


def test_the_command_shows_tracebacks_on_request(command: Command) -> None:
    full = command(sys.executable, str(ROOT / "train.py"), LONG, HYDRA_FULL_ERROR="1")
    assert "Traceback (most recent call last)" in full.err
    assert "Exceeds the limit" in full.err


def test_a_plus_before_a_key_that_exists_is_of_no_harm() -> None:
    typed = "+trainer.fast_dev_run=true ++devices=2 +experiment=toy_mlp +data.samples=9 ~logger +mine=1 -m a=1"
    words = "trainer.fast_dev_run=true devices=2 experiment=toy_mlp ++data.samples=9 ~logger +mine=1 -m a=1"
    assert [*map(without_plus, typed.split(" "))] == words.split(" ")


WRONG = [
    ("+model.x=1", "model.x=1: Classifier takes no such argument; write one of: net, optimizer, scheduler, "),
    ("+trainer.max_epoch=1", "trainer.max_epoch=1: there is no such key (did you mean trainer.max_"),
]


@pytest.mark.parametrize(("word", "sentence"), WRONG, ids=[case[0] for case in WRONG])
def test_words_that_fit_nothing(word: str, sentence: str, make_plan: MakePlan) -> None:
    with pytest.raises(ConfigError) as refused, planning([word]):
        make_plan(word)
    assert sentence in str(refused.value)


TEMPLATE = {
    "trainer=ddp": "strategy=ddp devices=2",
    "trainer.max_epochs=20": "max_epochs=20",
    "callbacks.model_checkpoint.save_top_k=3": "checkpoint.monitor=METRIC or checkpoint.every_n_steps=N",
    "extras.print_config=true": "--cfg job",
    "model.net.lin1_size=128": "model.net.hidden=[128,128,64]",
    "lr=0.1": "optimizer.lr=0.1",
    "devices=2": None,
}


def test_words_of_the_template_are_answered_and_keys_that_exist_are_none() -> None:
    assert {word: synonym(word) for word in TEMPLATE} == TEMPLATE
    files = {(group, path.stem): path for group in OPTIONS for path in (CONF / group).glob("*.yaml")}
    keys = [f"{group}.{name}" for (group, _), path in files.items() for name in yaml.safe_load(path.read_text())]
    keys += yaml.safe_load((CONF / "train.yaml").read_text())
    keys = [key for key in keys if key not in ("data.batch_size", "data.num_workers")]  # few data modules have these
    assert [word for word in (*(f"{key}=1" for key in keys), *map("=".join, files)) if synonym(word)] == []
