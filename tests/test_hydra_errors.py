"""What Hydra, or a flag, refuses becomes one sentence that names the override."""

import sys

import pytest
import yaml

from lockstep.base.config_error import ConfigError, typed_command
from lockstep.base.files import CONF
from lockstep.command.compose import OPTIONS, compose_job, without_plus
from lockstep.command.hydra_errors import planning
from lockstep.plan.schemas.former import synonym
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
        "devices=1,2: several values are a list or a sweep; write -m devices=1,2 to run a job for each, or",
    ),
    ("model.dropout=0.1", "there is no such key; write model.net.dropout=0.1."),
    ("devices", "devices: this cannot be parsed; write KEY=VALUE"),
    ("=1", "=1: this cannot be composed (ValueError: Config group override must be a string or a list. Got int)"),
    ("+devices=2", "+devices=2: Could not append to config. An item is already at 'devices'. Either remove + prefix"),
    ("engine=[raw,both]", "engine=[raw,both]: this group takes one option; write engine=raw."),
    ("logger=[csv,cvs]", "logger=cvs: there is no such option (did you mean csv?); write logger=csv, or another of"),
    ("logger.project=a", "logger.project=a: the chosen logger has no such key; write logger=wandb."),
    ("logger.wandb.project=a", "logger.wandb.project=a: the chosen logger has no such key; write logger=wandb."),
    ("callbacks.timer.duration=1", "the chosen callbacks has no such key; write callbacks=timer."),
    ("model=mpl", "model=mpl: there is no such option (did you mean mlp?); write model=mlp, or"),
    ("name=${nope}", "${nope}: hydra.run.dir refers to it, and there is no such key."),
    (LONG, "99999: this cannot be composed (ValueError: Exceeds the limit"),
    ("x" * 300 + "=[1]", "xx=[1]: this cannot be composed (OSError: [Errno 36] File name too long"),
    ("max_steps=5", "max_steps=5: there is no such key (did you mean trainer.max_steps?); write trainer.max_steps=5."),
    ("trainer.strategy=ddp", "trainer.strategy=ddp: there is no such key; write strategy=ddp."),
    ("lr=0.1", "lr=0.1: there is no such key; write optimizer.lr=0.1."),
    ("data=text data._split_.val=5", "data._split_.val=5: there is no such key; write data.val_size=5."),
    ("data.split.test=0.2", "data.split.test=0.2: there is no such key; write data.test_size=0.2."),
    ("model.hidden=[3]", "model.hidden=[3]: there is no such key; write model.net.hidden=[3]."),
    ("model.optimizer.lr=0.1", "model.optimizer.lr=0.1: there is no such key; write optimizer.lr=0.1."),
    (
        "optimizer.decay_bias_and_norm=false",
        "there is no such key; write optimizer=adamw_groups, which spares",
    ),
    ("task=autoencoding", "task=autoencoding: there is no such key; write model=autoencoder."),
    ("task.name=regression", "write a LightningModule with this loss, as python -m lockstep.new mine writes one."),
    ("dropout_rng=global", "strategy=virtual devices=N draws the masks of ddp devices=N."),
    ("data=model", "data=model: there is no such option; write data=none."),
    ("model.lr=0.1", "model.lr=0.1: there is no such key; write optimizer.lr=0.1."),
    ("data.batch_size=8", "data.batch_size=8: the size of a batch is a key of the run; write batch_size=8."),
    ("optimizer.momentum=0.9", "optimizer.momentum=0.9: the chosen optimizer has no such key; write optimizer=sgd."),
    ("num_workers=4", "there is no such key; write data.loader.num_workers=4."),
    ("precison=64", "precison=64: there is no such key (did you mean precision?); write precision=64."),
    ("dataset=mnist", "dataset=mnist: there is no such key (did you mean data?); write data=mnist."),
    ("debug=true", "debug=true: there is no such option; write one of default, fdr, "),
    ("predict=true", "predict=true: there is no such key; write python -m lockstep.predict RUN INPUT."),
    ("predict", "predict: this cannot be parsed; write python -m lockstep.predict RUN INPUT."),
    ("log=false", "log=false: there is no such key; write one that python train.py --help lists."),
    ("amp=true", "amp=true: there is no such key; write one that python train.py --help lists."),
    ("validate=true", "validate=true: there is no such key; write one that python train.py --help lists."),
    ("trainer.data=x", "trainer.data=x: there is no such key; write one that python train.py --help lists."),
    ("scheduler=cosine", "scheduler=cosine: there is no such option; write one of none, "),
    ("optimizer.foo=1", "the YAML of torch.optim.Adam has no such key; write +optimizer.foo=1 to add this argument."),
    (
        "model=example model.net.norm=3",
        "model.net.norm=3: the YAML of example.net.Net has no such key; write +model.net.norm=3 to add this argument.",
    ),
    ("model=example model.net.widht=3", "no such key (did you mean model.net.width?); write model.net.width=3."),
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
    with pytest.raises(ConfigError, match=r"^model\.dropout=0\.1: there is no such key"), planning(words):
        compose_job(words)


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


TEMPLATE = [
    (
        "trainer.max_epochs=20 model.optimizer.lr=1e-4",
        "trainer.max_epochs=20: there is no such key; write max_epochs=20.",
    ),
    ("trainer=ddp", "write strategy=ddp devices=2."),
    ("trainer=ddp_sim", "write strategy=ddp devices=2 accelerator=cpu."),
    ("++trainer.precision=16", "write precision=16-mixed."),
    ("trainer=mps", "trainer=mps: it is a group of keys; write accelerator=cpu, or accelerator=gpu."),
    ("++trainer.gradient_clip_val=0.5", "write gradient_clip_val=0.5."),
    ("task_name=mnist", "task_name=mnist: there is no such key; write name=mnist."),
    ("paths.log_dir=/logs", "write hydra.run.dir=FOLDER for one run, or name=NAME for logs/NAME."),
    ("paths.data_dir=/data", "write data.root=/data."),
    ("data=mnist paths.data_dir=/data", "paths.data_dir=/data: there is no such key; write data.root=/data."),
    ("paths=default", "paths=default: there is no such key; write nothing in its place."),
    ("datamodule=mnist", "datamodule=mnist: there is no such key; write data=mnist."),
    ("model.net.width=8", "the chosen model has no such key; write model=char_rnn or example or example_module."),
    ("data=example data._loader_.num_workers=2", "there is no such key; write data.loader.num_workers=2."),
    ("scheduler=onecycle scheduler._interval_=step", "there is no such key; write +model.scheduler_interval=step."),
    ("data=line data.predict=[7]", "write callbacks=fitted_line callbacks.fitted_line.predict=[7]."),
    ("model.scheduler.patience=3", "write scheduler=onecycle or scheduler=warmup_linear, or a YAML of yours in "),
    ("trainer.min_epochs=1", "write nothing in its place: without callbacks=early_stopping a run has max_epochs"),
    ("trainer.callbacks=null", "trainer.callbacks=null: there is no such key; write callbacks=none."),
    ("callbacks=rich_progress_bar", "write nothing in its place: a terminal shows a bar."),
    ("ckpt_path=https://a.b/c.ckpt", "ckpt_path=https://a.b/c.ckpt: a URL is not downloaded; write the path of a "),
    ("print_config=true", "print_config=true: there is no such key; write --cfg job."),
    ("extras.print_config=true", "write --cfg job."),
    ("model.compile=true", "model.compile=true: there is no such key; write compile=true."),
    ("model.net.lin1_size=128", "write model.net.hidden=[128,128,64]."),
    ("logger=many_loggers", "there is no such option; write logger=[csv,tensorboard], logger=wandb or logger=mlflow."),
    ("logger=null", "logger=null: there is no such option; write logger=none."),
    ("logger=false", "logger=false: there is no such option; write logger=none."),
    ("trainer.accelerator=tpu", "write accelerator=cpu, or accelerator=gpu."),
    ("trainer.strategy=ddp_find_unused_parameters_false", "write strategy=ddp."),
    ("extras.enforce_tags=False", "write nothing in its place: this is the default."),
    ("hydra.sweeper.n_trials=3", "write -m hydra/sweeper=search beside it, or -m experiment=optuna."),
    ("callbacks=default", "write nothing in its place: checkpoints are always saved."),
    ("callbacks.model_checkpoint.save_top_k=3", "write checkpoint.monitor=METRIC or checkpoint.every_n_steps=N."),
    ("hparams_search=mnist_optuna", "write -m experiment=optuna, after pip install hydra-optuna-sweeper."),
    ("hydra/launcher=joblib", "there is no such option; write -m without it, which runs one job after another"),
]
"""What a user of lightning-hydra-template types."""


@pytest.mark.parametrize(("words", "sentence"), TEMPLATE, ids=[case[0] for case in TEMPLATE])
def test_words_of_the_template_are_answered_with_those_of_this_project(
    words: str, sentence: str, make_plan: MakePlan
) -> None:
    typed = [*map(without_plus, words.split(" "))]
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
