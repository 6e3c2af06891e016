import pytest

from lockstep.compose import compose_job
from lockstep.explain import explained, known_keys
from lockstep.refusal import Refusal

EXPLAINED = [
    (["devicez=2"], "devicez=2: there is no such key (did you mean devices?); write devices=2."),
    (["optimizer.learning_rate=1"], "optimizer.learning_rate=1: there is no such key"),
    (["optimizer.lrr=1"], "did you mean optimizer.lr?"),
    (["modell=mlp"], "did you mean model?"),
    (["strategy=dpp"], "strategy=dpp: there is no such option (did you mean ddp?); write strategy=ddp, or another of"),
    (["model=zzz"], "model=zzz: there is no such option; write one of cnn, lenet, linear, mlp, split_cnn."),
    (["devices=1,2"], "devices=1,2: several values make a sweep; write -m in front of them, or devices=1."),
    (["model.dropout=0.1"], "model.dropout=0.1: the chosen model has no such key; write model=lenet with it."),
    (["devices"], "devices: this cannot be read; write KEY=VALUE"),
    (["ckpt_path=a b=c"], "ckpt_path=a b=c: this cannot be read; write \"ckpt_path='a b=c'\", quotes and all."),
    (["+experiment=toy_mlp"], "+experiment: the key is there already; write experiment=VALUE without the plus sign."),
    (["+devices=2"], "+devices: the key is there already; write devices=VALUE without the plus sign."),
    (["~ckpt_path"], "~ckpt_path: a key cannot be taken away; write ckpt_path=VALUE."),
]


@pytest.mark.parametrize(("overrides", "sentence"), EXPLAINED, ids=[case[0][0] for case in EXPLAINED])
def test_hydras_errors_become_one_sentence(overrides: list[str], sentence: str) -> None:
    with pytest.raises(Refusal) as refusal:
        compose_job(overrides)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_errors_that_are_not_hydras_are_passed_on() -> None:
    for error in (ValueError("a bug"), OSError(28, "No space left on device")):
        with pytest.raises(type(error)) as raised:
            explained(error)
        assert raised.value is error


def test_known_keys_are_all_keys() -> None:
    assert {"devices", "strategy", "model.hidden", "optimizer.momentum", "experiment"} <= set(known_keys())
