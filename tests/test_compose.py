import re
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from lockstep.base.files import CONF
from lockstep.command.compose import compose_job, replacing, without_plus
from lockstep.plan.schemas.groups import GROUPS


def test_every_run_has_another_folder() -> None:
    folders = {compose_job(["name=here"])[1] for _ in range(5)}
    assert len(folders) == 5
    assert {folder.parent for folder in folders} == {Path("logs/here").absolute()}


def test_groups_offer_what_the_code_knows() -> None:
    for group, options in GROUPS.items():
        paths = {getattr(option, "path", None): name for name, option in options.items()}
        texts = {path.stem: path.read_text() for path in (CONF / group).glob("*.yaml")}
        targets = {name: re.search(r"^ *_target_: (.*)", text, re.MULTILINE) for name, text in texts.items()}
        assert {name for name, match in targets.items() if not match or paths.get(match[1]) == name} == set(options)


def test_the_folder_conf_of_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has Lockstep's names stays Lockstep's."""
    (tmp_path / "conf" / "model").mkdir(parents=True)
    for name in ("mine", "mlp"):
        (tmp_path / "conf" / "model" / f"{name}.yaml").write_text("_target_: mine.Module\nwidth: 8\n")
    monkeypatch.chdir(tmp_path)
    assert compose_job(["model=mine"])[0].model.width == 8
    assert "net" in compose_job(["model=mlp"])[0].model


def test_a_target_in_place_of_an_option_replaces_it() -> None:
    words = ["model={_target_:torchvision.models.resnet18}", "optimizer={lr:1}"]
    words = [each for word in words for each in replacing(word)]
    assert words == ["~model", "+model={_target_:torchvision.models.resnet18}", "optimizer={lr:1}"]
    assert compose_job(words[:2])[0].model == {"_target_": "torchvision.models.resnet18"}


def test_arguments_that_no_file_has_are_added() -> None:
    """What the optimizer takes is checked where it is called."""
    typed = ["optimizer.betas=[0.9,0.99]", "model.metrics=[auroc]", "optimizer.lr=1", "model.nope=1", "scheduler=none"]
    added = ["++optimizer.betas=[0.9,0.99]", "++model.metrics=[auroc]", *typed[2:]]
    assert [*map(without_plus, typed)] == added
    config, _ = compose_job(added[:3])
    assert (config.optimizer.betas, config.model.metrics) == ([0.9, 0.99], ["auroc"])


def test_every_option_and_key_is_explained() -> None:
    for path in CONF.glob("[!h]*/*.yaml"):
        assert path.read_text().startswith("# "), path
    keys = (CONF / "train.yaml").read_text().split("\n\n")[1].splitlines()
    assert all("  # " in line for line in keys), keys


def slurm_launcher(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        words = ["hydra/launcher=slurm", "hydra.job.name=train", *overrides]
        launcher: DictConfig = compose("train", words, return_hydra_config=True).hydra.launcher
    return launcher


@pytest.mark.parametrize(
    ("overrides", "tasks", "nodes", "gpus"),
    [
        ([], 1, 1, None),
        (["strategy=ddp", "devices=4", "num_nodes=2"], 4, 2, None),
        (["strategy=dp", "devices=2", "accelerator=gpu"], 1, 1, 2),
    ],
)
def test_slurm_starts_as_many_tasks_as_there_are_ranks(
    overrides: list[str], tasks: int, nodes: int, gpus: int | None
) -> None:
    launcher = slurm_launcher(*overrides)
    assert (launcher.tasks_per_node, launcher.nodes, launcher.gpus_per_node) == (tasks, nodes, gpus)
