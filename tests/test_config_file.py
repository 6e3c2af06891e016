"""config.yaml is the composed configuration: Hydra instantiates its model, and `--config-name` runs it again."""

from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from tests.comparing import lines, metrics_in
from tests.conftest import Command, MakePlan, require_refused

SMALL = ("data=points", "model.net.hidden=[4]", "optimizer=sgd", "max_epochs=2", "threads=1", "logger=none")


def engine_in(folder: Path) -> str:
    return str(OmegaConf.load(folder / "config.yaml").engine.name)


@pytest.mark.slow
def test_a_run_from_its_config_file(command: Command) -> None:
    """Of engine=both each part has its engine; what is typed beside the file counts; a group cannot be chosen."""
    both, raw = command.folder / "both", command.folder / "both" / "raw"
    ended = command.train("engine=both", *SMALL, "hydra.run.dir=both")
    assert ended.status == 0, ended.err
    assert [engine_in(folder) for folder in (both, both / "lightning", raw)] == ["both", "lightning", "raw"]

    config = OmegaConf.load(raw / "config.yaml")
    assert (config.model.net.sample_shape, config.model.num_classes, config.batch_size) == ([2], 2, 64)
    assert instantiate(config.data).batch_size == 64
    saved = torch.load(raw / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    instantiate(config.model).load_state_dict(saved, strict=True)

    again = ("--config-dir", "both/raw", "--config-name", "config")
    assert command.train(*again, "hydra.run.dir=again").status == 0
    assert metrics_in(command.folder / "again")["digest"] == metrics_in(raw)["digest"]
    assert command.train(*again, "hydra.run.dir=faster", "optimizer.lr=0.1").status == 0
    assert {step["lr"] for step in lines(command.folder / "faster", "step")} == {0.1}
    assert {step["lr"] for step in lines(command.folder / "again", "step")} == {0.01}

    ended = command.train(*again, "hydra.run.dir=none", "model=cnn")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("hydra.run.dir=none model=cnn: Could not override 'model'.")
    assert ended.err.count("\n") == 1
    assert not (command.folder / "none").exists()


WITHOUT = {
    "model/mine.yaml: {_target_: example.net.Net, width: 8}": (
        "model._target_=example.net.Net: it is a net, and a LightningModule trains it; "
        "write _target_: lockstep.models.Classifier, net: {_target_: example.net.Net, …}"
    ),
    "data/mine.yaml: {_target_: example.data.Rings, samples: 9}": (
        "data._target_=example.data.Rings: it makes a Rings, and not a LightningDataModule; write the path of one, or "
    ),
    "optimizer/mine.yaml: {_target_: torch.optim.Adam, lr: 0.1}": (
        "optimizer._partial_ is missing: a module calls it with more arguments; write _partial_: true."
    ),
}
"""YAML files that name a net, a Dataset or an optimizer as if they needed nothing around them."""


@pytest.mark.parametrize("file", WITHOUT)
def test_a_yaml_file_of_a_part_is_answered_by_the_one_to_write(
    file: str, make_plan: MakePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _, yaml = file.partition(": ")
    (tmp_path / "conf" / path).parent.mkdir(parents=True)
    (tmp_path / "conf" / path).write_text(yaml)
    monkeypatch.chdir(tmp_path)
    require_refused(WITHOUT[file], make_plan, f"{path.partition('/')[0]}=mine")


def test_a_wrong_value_of_a_target_is_one_sentence(command: Command) -> None:
    ended = command.train("optimizer.lr=abc")
    assert ended.err == "optimizer.lr=abc: Adam takes a number; write optimizer.lr=0.1, for example.\n"
    assert (ended.status, [*command.folder.iterdir()]) == (2, [])
