"""What is remembered is what is composed anew."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from lockstep.command_line.compose import compose_job
from tests.composition import COMPOSE, CREATE, compose_by

JOBS = [
    ["strategy=ddp", "devices=2", "name=here"],
    ["model=lenet", "+model.more=[1,2]", "logger=[csv,tensorboard]"],
    ["experiment=mnist_lenet", "~scheduler"],
]


@pytest.mark.parametrize("words", JOBS, ids=" ".join)
def test_it_is_what_is_composed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after somebody has written into what they got, and with another value before."""
    overrides = [*words, "hydra.run.dir=there"]
    compose_job([*overrides, "seed=3"])[0].optimizer.lr = 7
    remembered = compose_job(overrides)
    compose_by(monkeypatch, CREATE, COMPOSE)
    anew = compose_job(overrides)
    assert remembered[1] == anew[1]
    assert OmegaConf.to_yaml(remembered[0]) == OmegaConf.to_yaml(anew[0])


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "model" / "own.yaml"
    file.parent.mkdir()
    for width in (3, 4):
        file.write_text(f"_target_: torch.nn.Linear\nwidth: {width}\n")
        config, _ = compose_job([f"hydra.searchpath=[file://{tmp_path}]", "model=own"])
        assert config.model.width == width
