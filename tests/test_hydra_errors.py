from dataclasses import fields

import pytest

from lockstep import schemas
from lockstep.command_line.compose import compose_job
from lockstep.command_line.hydra_errors import explained, known_keys
from lockstep.config_error import ConfigError
from lockstep.job import planning
from lockstep.schemas.synonyms import SYNONYMS, TRAINER, UNSUPPORTED

EXPLAINED = [
    (["devicez=2"], "devicez=2: there is no such key (did you mean devices?); write devices=2."),
    (["optimizer.learning_rate=1"], "optimizer.learning_rate=1: there is no such key"),
    (["optimizer.lrr=1"], "did you mean optimizer.lr?"),
    (["modell=mlp"], "did you mean model?"),
    (["strategy=dpp"], "strategy=dpp: there is no such option (did you mean ddp?); write strategy=ddp, or another of"),
    (
        ["model=zzz"],
        "model=zzz: there is no such option; write one of char_rnn, cnn, example, example_module, lenet, "
        "linear, mlp, split_cnn.",
    ),
    (["devices=1,2"], "devices=1,2: several values make a sweep; write -m in front of them, or devices=1."),
    (
        ["model.dropout=0.1"],
        "model.dropout=0.1: the chosen model has no such key; write model=example or model=lenet with it.",
    ),
    (["devices"], "devices: this cannot be read; write KEY=VALUE"),
    (["ckpt_path=a b=c"], "ckpt_path=a b=c: this cannot be read; write \"ckpt_path='a b=c'\", quotes and all."),
    (["+experiment=toy_mlp"], "+experiment: the key is there already; write experiment=VALUE without the plus sign."),
    (["+devices=2"], "+devices: the key is there already; write devices=VALUE without the plus sign."),
    (
        ["model=[true]"],
        "model=[true]: a group takes the name of one of its options; write one of char_rnn, cnn, ",
    ),
    (["experiment=[1,2]"], "experiment=[1,2]: a group takes the name of one of its options; write one of amp_recipe"),
    (["engine=[raw,both]"], "engine=[raw,both]: a group takes the name of one of its options; write engine=raw."),
    (["logger=[csv,cvs]"], "logger=cvs: there is no such option (did you mean csv?); write logger=csv, or another of"),
    (["logger=[]"], "logger=[]: a group takes the name of one of its options; write one of csv, mlflow, none,"),
    (["logger.project=a"], "logger.project=a: there is no such key (did you mean logger.wandb.project?); write logge"),
    (["logger.wandb.project=a"], "logger.wandb.project=a: the chosen logger has no such key; write logger=wandb with"),
    (["logger=${ranks_of:ddp,2}"], "logger=${ranks_of:ddp,2}: a group takes the name of one of its options; write o"),
    (["seed=" + "9" * 5000], "99999: this cannot be composed (ValueError: Exceeds the limit"),
    (["seed=1", "x" * 300 + "=[1]"], "xx=[1]: this cannot be composed (OSError: [Errno 36] File name too long"),
    (["max_steps=5"], "max_steps=5: there is no such key, it is trainer.max_steps here; write trainer.max_steps=5."),
    (
        ["limit_train_batches=2"],
        "it is trainer.limit_train_batches here; write trainer.limit_train_batches=2.",
    ),
    (["trainer.devices=2"], "trainer.devices=2: there is no such key, it is devices here; write devices=2."),
    (["trainer.strategy=ddp"], "it is strategy here; write strategy=ddp."),
    (["barebones=true"], "barebones=true: there is no such key, it is trainer.barebones here; write trainer.bareb"),
    (["trainer.min_steps=2"], "write max_epochs=N."),
    (["lr=0.1"], "lr=0.1: there is no such key, it is optimizer.lr here; write optimizer.lr=0.1."),
    (["epochs=3"], "epochs=3: there is no such key, it is max_epochs here; write max_epochs=3."),
    (["dropout=0.1"], "dropout=0.1: there is no such key (did you mean model.dropout?); write model.dropout=0.1."),
    (["momentum=0.5"], "did you mean optimizer.momentum?"),
    (["optimizer.foo=1"], "optimizer.foo=1: there is no such key; write one that python train.py --help lists."),
    (["~ckpt_path"], "~ckpt_path: a key cannot be taken away; write ckpt_path=VALUE."),
]


@pytest.mark.parametrize(("overrides", "sentence"), EXPLAINED, ids=[case[0][0][:40] for case in EXPLAINED])
def test_hydras_errors_become_one_sentence(overrides: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised, planning(overrides):
        compose_job(overrides)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_errors_that_are_not_hydras_are_passed_on() -> None:
    for error in (ValueError("a bug"), OSError(28, "No space left on device")):
        with pytest.raises(type(error)) as raised:
            explained(error)
        assert raised.value is error


@pytest.mark.parametrize("name", [*SYNONYMS, *UNSUPPORTED])
def test_no_name_that_is_usual_elsewhere_is_a_key(name: str) -> None:
    assert name not in known_keys()
    assert SYNONYMS.get(name, "seed") in {*known_keys(), "hydra.run.dir"}


def test_all_keys_of_the_trainer_are_synonyms() -> None:
    assert {*TRAINER} == {field.name for field in fields(schemas.Trainer)}


def test_known_keys_are_all_keys() -> None:
    assert {"devices", "strategy", "model.hidden", "optimizer.momentum", "experiment"} <= set(known_keys())
