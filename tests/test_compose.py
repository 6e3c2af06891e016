from pathlib import Path

import pytest
from omegaconf import OmegaConf

from lockstep.choices import GROUPS
from lockstep.compose import compose_job
from lockstep.explain import CONF


def test_an_unusual_value_in_quotes_is_taken() -> None:
    config, _ = compose_job(["ckpt_path='logs/naïve run/epoch=3, step=4.ckpt'"])
    assert config.ckpt_path == "logs/naïve run/epoch=3, step=4.ckpt"


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
