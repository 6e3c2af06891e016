from pathlib import Path

import pytest
from omegaconf import OmegaConf

from lockstep.choices import GROUPS
from lockstep.compose import CONF, compose_job, known_keys
from lockstep.refusal import Refusal

EXPLAINED = [
    (["devicez=2"], "devicez: there is no such key; did you mean devices?"),
    (["optimizer.learning_rate=1"], "optimizer.learning_rate: there is no such key"),
    (["optimizer.lrr=1"], "did you mean optimizer.lr?"),
    (["modell=mlp"], "did you mean model?"),
    (["strategy=dpp"], "strategy=dpp: there is no such option; write one of ddp, ddp_spawn, single."),
    (["model=resnet"], "model=resnet: there is no such option; write one of cnn, lenet, linear, mlp, split_cnn."),
    (["devices=1,2"], "devices=1,2: several values make a sweep; write -m in front of them, or devices=1."),
    (["model.dropout=0.1"], "model.dropout: the chosen model has no such key; write model=lenet with it."),
    (["devices"], "devices: this cannot be read; write KEY=VALUE"),
]


@pytest.mark.parametrize(("overrides", "sentence"), EXPLAINED, ids=[case[0][0] for case in EXPLAINED])
def test_hydras_errors_become_one_sentence(overrides: list[str], sentence: str) -> None:
    with pytest.raises(Refusal) as refusal:
        compose_job(overrides)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_every_run_has_a_folder_of_its_own() -> None:
    folders = {compose_job(["name=here"])[1] for _ in range(5)}
    assert len(folders) == 5
    assert {folder.parent for folder in folders} == {Path("logs/here").absolute()}


def test_groups_offer_what_the_code_knows() -> None:
    for group, options in GROUPS.items():
        assert {path.stem for path in (CONF / group).glob("*.yaml")} == set(options)


def test_every_option_and_key_is_explained() -> None:
    for path in CONF.glob("[!h]*/*.yaml"):
        assert path.read_text().startswith("# "), path
    keys = (CONF / "train.yaml").read_text().split("\n\n")[1].splitlines()
    assert all("  # " in line for line in keys), keys


@pytest.mark.parametrize("experiment", sorted(path.stem for path in (CONF / "experiment").glob("*.yaml")))
def test_experiments_compose(experiment: str) -> None:
    config, _ = compose_job([f"experiment={experiment}"])
    overridden = OmegaConf.load(CONF / "experiment" / f"{experiment}.yaml")
    assert config.max_epochs == overridden.max_epochs


def test_known_keys_are_all_keys() -> None:
    assert {"devices", "strategy", "model.hidden", "optimizer.momentum", "experiment"} <= set(known_keys())
