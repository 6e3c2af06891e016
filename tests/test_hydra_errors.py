"""What Hydra, or a flag, refuses becomes one sentence that names the override."""

import sys

import pytest
import yaml

from lockstep.command_line.compose import compose_job
from lockstep.command_line.hydra_errors import planning
from lockstep.command_line.overrides import OPTIONS
from lockstep.conf import CONF
from lockstep.config_error import ConfigError, typed_command
from lockstep.schemas.coerce import SYNONYMS
from tests.conftest import ROOT, Command

LONG = "seed=" + "9" * 5000
"""Python reads no number of so many digits: an error that neither Hydra nor Lockstep expects."""
EXPLAINED = [
    ("devicez=2", "devicez=2: there is no such key (did you mean devices?); write devices=2."),
    ("optimizer.lrr=1", "did you mean optimizer.lr?"),
    ("strategy=dpp", "strategy=dpp: there is no such option (did you mean dp?); write strategy=dp, or another of"),
    ("model=zzz", "model=zzz: there is no such option; write one of char_rnn, cnn, example, example_module, lenet, "),
    ("devices=1,2", "devices=1,2: several values are a list or a sweep; write -m devices=1,2 to run a job for each."),
    (
        "logger=csv,tensorboard",
        "sweep; write logger=[csv,tensorboard], or -m logger=csv,tensorboard to run a job for each.",
    ),
    ("model.dropout=0.1", "the chosen model has no such key; write model=example or lenet."),
    ("devices", "devices: this cannot be parsed; write KEY=VALUE"),
    ("=1", "=1: this cannot be composed (ValueError: Config group override must be a string or a list. Got int)"),
    ("+devices=2", "+devices=2: Could not append to config. An item is already at 'devices'. Either remove + prefix"),
    ("engine=[raw,both]", "engine=[raw,both]: this group takes one option; write engine=raw."),
    ("logger=[csv,cvs]", "logger=cvs: there is no such option (did you mean csv?); write logger=csv, or another of"),
    ("logger.project=a", "logger.project=a: the chosen logger has no such key; write logger=wandb."),
    ("logger.wandb.project=a", "logger.wandb.project=a: the chosen logger has no such key; write logger=wandb."),
    ("name=${nope}", "name=${nope}: Interpolation key 'nope' not found"),
    (LONG, "99999: this cannot be composed (ValueError: Exceeds the limit"),
    ("x" * 300 + "=[1]", "xx=[1]: this cannot be composed (OSError: [Errno 36] File name too long"),
    ("max_steps=5", "max_steps=5: there is no such key (did you mean trainer.max_steps?); write trainer.max_steps=5."),
    ("trainer.strategy=ddp", "there is no such key (did you mean strategy?); write strategy=ddp."),
    ("lr=0.1", "lr=0.1: there is no such key (did you mean optimizer.lr?); write optimizer.lr=0.1."),
    ("data=text data._split_.val=5", "there is no such key (did you mean data.split.val?); write data.split.val=5."),
    ("data._split_.val=5", "data._split_.val=5: there is no such key; write one that python train.py --help lists."),
    ("model.lr=0.1", "model.lr=0.1: there is no such key (did you mean optimizer.lr?); write optimizer.lr=0.1."),
    ("data.batch_size=8", "there is no such key (did you mean batch_size?); write batch_size=8."),
    ("optimizer.momentum=0.9", "optimizer.momentum=0.9: the chosen optimizer has no such key; write optimizer=sgd."),
    ("num_workers=4", "there is no such key; write data.loader.num_workers=4 if the chosen option has this key."),
    ("precison=64", "precison=64: there is no such key (did you mean precision?); write precision=64."),
    ("dataset=mnist", "dataset=mnist: there is no such key (did you mean data?); write data=mnist."),
    ("predict=true", "predict=true: there is no such key; write python -m lockstep.predict RUN INPUT."),
    ("log=false", "log=false: there is no such key; write one that python train.py --help lists."),
    ("amp=true", "amp=true: there is no such key; write one that python train.py --help lists."),
    ("validate=true", "validate=true: there is no such key; write one that python train.py --help lists."),
    ("trainer.data=x", "trainer.data=x: there is no such key; write one that python train.py --help lists."),
    ("scheduler=cosine", "scheduler=cosine: there is no such option; write one of none, "),
    ("optimizer.foo=1", "optimizer.foo=1: there is no such key; write one that python train.py --help lists."),
    ("~ckpt_path", "~ckpt_path: Could not delete from config."),
]


@pytest.mark.parametrize(("override", "sentence"), EXPLAINED, ids=[case[0][:40] for case in EXPLAINED])
def test_an_error_of_hydra_becomes_one_sentence(override: str, sentence: str) -> None:
    words = [override] if len(override) > 99 else override.split(" ")
    with pytest.raises(ConfigError) as raised, planning(words):
        compose_job(words)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_override_that_hydra_names_is_named() -> None:
    words = ["model=mlp", "model.dropout=0.1", "devices=2"]
    with pytest.raises(ConfigError, match=r"^model\.dropout=0\.1: the chosen model has no such key"), planning(words):
        compose_job(words)


def test_a_bug_stays_the_cause() -> None:
    with pytest.raises(ConfigError) as raised, planning(["a=1", "-m", "b=2"]):
        raise KeyError("a bug")
    assert str(raised.value).startswith("a=1 b=2: this cannot be composed (KeyError: 'a bug'); write ")
    assert isinstance(raised.value.__cause__, KeyError)
    assert raised.value.__cause__.__traceback__ is not None


def test_the_command_shows_tracebacks_on_request(command: Command) -> None:
    ended = command.train(LONG)
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1), ended.err
    assert "Traceback" not in ended.err
    full = command(sys.executable, str(ROOT / "train.py"), LONG, HYDRA_FULL_ERROR="1")
    assert "Traceback (most recent call last)" in full.err
    assert "Exceeds the limit" in full.err
    assert not list(command.folder.iterdir())


@pytest.mark.parametrize(
    ("program", "typed"),
    [
        ("/home/me/checkout/train.py", "python train.py"),
        ("/venv/bin/lockstep", "lockstep"),
        ("/venv/lib/python3.12/site-packages/lockstep/__main__.py", "python -m lockstep"),
        ("/venv/bin/pytest", "python train.py"),
    ],
)
def test_messages_name_the_command_that_was_typed(program: str, typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [program, "profiler=x"])
    assert typed_command() == typed


def test_synonyms_are_no_keys() -> None:
    assert not {*SYNONYMS} & {*yaml.safe_load((CONF / "train.yaml").read_text()), *OPTIONS}
