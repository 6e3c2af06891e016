"""What Hydra, or a flag, refuses becomes one sentence that names the override."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from lockstep.base.config_error import ConfigError, typed_command
from lockstep.base.files import CONF
from lockstep.command.build import typed_values
from lockstep.command.compose import OPTIONS, compose_job, replacing, without_plus
from lockstep.command.hydra_errors import planning
from lockstep.plan.schemas.former import synonym
from lockstep.plan.schemas.groups import key_of
from tests.conftest import ROOT, USER_CODE, Command, MakePlan

LONG = "seed=" + "9" * 5000
"""Python reads no number of so many digits: an error that neither Hydra nor Lockstep expects."""
EXPLAINED = [
    ("devicez=2", "devicez=2: there is no such key (did you mean devices?); write devices=2."),
    ("optimizer.lrr=1", "did you mean optimizer.lr?"),
    ("strategy=dpp", "strategy=dpp: there is no such option (did you mean dp?); write strategy=dp, or another of"),
    ("model=zzz", "model=zzz: there is no such option; write one of autoencoder, char_rnn, cnn, example, "),
    (
        "devices=1,2",
        "devices=1,2: several values are a list or a sweep; write -m devices=1,2 to run a job for each.",
    ),
    (
        "model.net.hidden=1,2",
        "write -m model.net.hidden=1,2 to run a job for each, or model.net.hidden=[1,2] for a list.",
    ),
    ("model=lenet model.dropout=0.1", "there is no such key; write model.net.dropout=0.1."),
    ("devices", "devices: this cannot be parsed; write KEY=VALUE"),
    ("=1", "=1: it has no key; write KEY=VALUE."),
    ("hydra=default", "hydra: it has no options; write nothing in its place, or hydra.KEY=VALUE."),
    ("+devices=2", "+devices=2: Could not append to config. An item is already at 'devices'. Either remove + prefix"),
    ("engine=[raw,both]", "engine=[raw,both]: this group takes one option; write engine=raw."),
    ("logger=[csv,cvs]", "logger=cvs: there is no such option (did you mean csv?); write logger=csv, or another of"),
    ("logger.wandb.project=a", "logger.wandb.project=a: the chosen logger has no such key; write logger=wandb."),
    (LONG, "99999: this cannot be composed (ValueError: Exceeds the limit"),
    ("max_steps=5", "max_steps=5: there is no such key (did you mean trainer.max_steps?); write trainer.max_steps=5."),
    ("data.batch_size=8", "data.batch_size=8: the size of a batch is a key of the run; write batch_size=8."),
    ("optimizer.momentum=0.9", "optimizer.momentum=0.9: the chosen optimizer has no such key; write optimizer=sgd."),
    ("dataset=mnist", "dataset=mnist: there is no such key (did you mean data?); write data=mnist."),
    ("predict", "predict: this cannot be parsed; write python -m lockstep.predict RUN INPUT."),
    ("amp=true", "amp=true: there is no such key; write one that python train.py --help lists."),
    ("optimizer.foo=1", "the YAML of torch.optim.Adam has no such key; write +optimizer.foo=1 to add this argument."),
    (
        "model=example model.net.norm=3",
        "model.net.norm=3: the YAML of example.net.Net has no such key; write +model.net.norm=3 to add this argument.",
    ),
    ("model=example model.net.widht=3", "no such key (did you mean model.net.width?); write model.net.width=3."),
    ("logger=null", "logger=null: there is no such option; write logger=none."),
    ("trainer.strategy=ddp", "trainer.strategy=ddp: there is no such key; write strategy=ddp."),
    ("model.net.width=8", "the chosen model has no such key; write model=char_rnn or example or example_module."),
    ("~ckpt_path", "~ckpt_path: Could not delete from config."),
]


REFUSED_TOO = [
    ("model.lr=&a", "model.lr=&a: this cannot be parsed; write KEY=VALUE, or"),
    ("model.lr=${oc.decode:${oc.env:X}}", "this cannot be parsed; write KEY=VALUE, or"),
    ("lr=abc", "lr=abc: there is no such key; optimizer.lr=abc: Adam takes a number; write optimizer.lr=0.1"),
    ("lr=[1]", "lr=[1]: there is no such key; optimizer._target_=torch.optim.Adam: it raises TypeError"),
    ("num_workers=4", "data.loader.num_workers=4: the chosen data has no such key; write data=example."),
    (
        "precison=64",
        "(did you mean precision?); precision=64: it is not one of the possible values (did you mean 64-true?",
    ),
    ("loss=1", "(did you mean loss_reduction?); loss_reduction=1: it is not one of the possible values; write one of"),
    ("checkpoint_dir=1", "(did you mean checkpoint?); checkpoint=1: it is a group of keys; write checkpoint.KEY=VALUE"),
    ("epochs=abc", "epochs=abc: there is no such key; max_epochs=abc: it takes a whole number below 2^63; write max_"),
]
"""What was advised to write here would be refused itself: the sentence goes on with that refusal."""


@pytest.mark.parametrize(("typed", "sentence"), REFUSED_TOO, ids=[case[0] for case in REFUSED_TOO])
def test_a_hint_that_would_be_refused_is_not_shown(typed: str, sentence: str) -> None:
    words = typed.split(" ")
    for plus in ("", "+"):
        with pytest.raises(ConfigError) as raised, planning(words):
            typed_values(compose_job([*map(without_plus, (plus + words[0], *words[1:]))])[0], Path())
        assert sentence in str(raised.value)


def advised(sentence: str) -> list[str]:
    """Return the overrides that a sentence advises to write first; none if there are placeholders in them."""
    hint = re.split(", | or | to ", sentence.rpartition("; write ")[2].removesuffix("."))[0].split(" ")
    concrete = all(re.match(r"\+?[\w./]+=.", word) and not re.search(r"\b[A-Z]{2,}\b|=N$|…", word) for word in hint)
    return hint if concrete else []


def refusal_of(words: list[str]) -> str:
    try:
        typed_values(compose_job(words)[0], Path())
    except Exception as error:
        return str(error)
    return ""


def names(sentence: str, words: Iterable[str]) -> bool:
    """Whether an error is about one of these overrides, or about its group."""
    return sentence.startswith(tuple(key_of(word).partition(".")[0] for word in words))


@pytest.mark.parametrize(("override", "sentence"), EXPLAINED, ids=[case[0][:40] for case in EXPLAINED])
def test_an_error_of_hydra_becomes_one_sentence(override: str, sentence: str) -> None:
    words = [override] if len(override) > 99 else override.split(" ")
    with pytest.raises(ConfigError) as raised, planning(words):
        compose_job(words)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)
    hint = advised(str(raised.value))
    assert not names(refusal_of(hint), hint)


def test_keys_of_configurations_of_a_user_are_suggested() -> None:
    words, folder = ["model=residual", "model.net.widht=3"], USER_CODE / "conf"
    with (
        pytest.raises(ConfigError, match=r"did you mean model\.net\.width\?"),
        planning(["--config-dir", str(folder), *words]),
    ):
        compose_job([f"hydra.searchpath=[file://{folder}]", *words])


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


TEMPLATE = {
    "trainer.max_epochs=20": "max_epochs=20",
    "model.optimizer.lr=1e-4": "optimizer.lr=1e-4",
    "trainer=ddp": "strategy=ddp devices=2",
    "trainer=ddp_sim": "strategy=ddp devices=2 accelerator=cpu",
    "trainer=mps": "accelerator=cpu, or accelerator=gpu",
    "trainer.accelerator=tpu": "accelerator=cpu, or accelerator=gpu",
    "trainer.strategy=ddp_find_unused_parameters_false": "strategy=ddp",
    "trainer.precision=16": "precision=16-mixed",
    "trainer.gradient_clip_val=0.5": "gradient_clip_val=0.5",
    "trainer.callbacks=null": "callbacks=none",
    "trainer.min_epochs=1": "nothing in its place: without callbacks=early_stopping a run has max_epochs",
    "callbacks=rich_progress_bar": "nothing in its place: each run has checkpoints and a bar",
    "callbacks.model_checkpoint.save_top_k=3": "checkpoint.monitor=METRIC or checkpoint.every_n_steps=N",
    "task_name=mnist": "name=mnist",
    "datamodule=mnist": "data=mnist",
    "paths=default": "nothing in its place",
    "paths.data_dir=/data": "data.root=/data",
    "paths.log_dir=/logs": "hydra.run.dir=FOLDER for one run, or name=NAME for logs/NAME",
    "extras.enforce_tags=False": "nothing in its place: this is the default",
    "print_config=true": "--cfg job",
    "model.compile=true": "compile=true",
    "model.net.lin1_size=128": "model.net.hidden=[128,128,64]",
    "model.hidden=[3]": "model.net.hidden=[3]",
    "model.scheduler_interval=step": "+model.scheduler_interval=step",
    "data._split_.val=5": "data.val_size=5",
    "data=model": "data=none",
    "logger=null": "logger=none",
    "logger=comet": "logger=[csv,tensorboard], logger=wandb or logger=mlflow",
    "hydra.sweeper.n_trials=3": "-m hydra/sweeper=search beside it, or -m experiment=optuna",
    "hparams_search=mnist_optuna": "-m experiment=optuna, after pip install hydra-optuna-sweeper",
    "hydra/launcher=joblib": "-m without it, which runs one job after another, or hydra/launcher=slurm",
    "predict=true": "python -m lockstep.predict RUN INPUT",
    "num_workers=4": "data.loader.num_workers=4",
    "lr=0.1": "optimizer.lr=0.1",
    "devices=2": None,
}
"""What a user of lightning-hydra-template, or of version 0.1, types."""


def test_words_of_other_tools_are_answered_with_those_of_this_project() -> None:
    assert {word: synonym(word) for word in TEMPLATE} == TEMPLATE


WRONG = [
    ("optimizer.lrr=1", "optimizer.lrr=1: Adam takes no such argument (did you mean lr?); write optimizer.lr=1, or "),
    ("+model.x=1", "model.x=1: Classifier takes no such argument; write one of: net, optimizer, scheduler, "),
    ("++foo.bar=1", "foo={bar:1}: there is no such key; write one that python train.py --help lists, or +model.foo=… "),
    ("seed_everything=3", "seed_everything=3: there is no such key; write seed=3."),
    ("strategy={_target_:a.B}", "it is a file of lockstep/strategies/, and no target; write one of ddp, "),
]


@pytest.mark.parametrize(("word", "sentence"), WRONG, ids=[case[0] for case in WRONG])
def test_words_that_fit_nothing(word: str, sentence: str, make_plan: MakePlan) -> None:
    typed = replacing(without_plus(word))
    with pytest.raises(ConfigError) as refused, planning(typed):
        make_plan(*typed)
    assert sentence in str(refused.value)


def test_a_plus_before_a_key_that_exists_is_of_no_harm() -> None:
    typed = "+trainer.fast_dev_run=true ++devices=2 +experiment=toy_mlp +data.samples=9 ~logger +mine=1 -m a=1"
    words = "trainer.fast_dev_run=true devices=2 experiment=toy_mlp ++data.samples=9 ~logger +mine=1 -m a=1"
    assert [*map(without_plus, typed.split(" "))] == words.split(" ")


def test_no_key_counts_as_a_word_of_another_tool() -> None:
    files = {
        (group, path.stem): yaml.safe_load(path.read_text())
        for group in OPTIONS
        for path in (CONF / group).glob("*.yaml")
    }
    rare = ("data.batch_size", "data.num_workers")  # few data modules have these
    keys = [f"{group}.{name}" for (group, file), values in files.items() for name in values if "example" not in file]
    keys = [key for key in keys if key not in rare]
    keys += yaml.safe_load((CONF / "train.yaml").read_text())
    assert [key for key in keys if synonym(f"{key}=1")] == []
    assert [option for option in files if synonym("=".join(option))] == []
