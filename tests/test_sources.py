"""The figures of docs/sources.md that can be had in seconds; test_docs.py runs each of its commands."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.engine.loaders.source import create_data
from lockstep.engine.session import prepared_module
from tests.checkpoints import net_state
from tests.comparing import metrics_in
from tests.conftest import ROOT, Command
from tests.inspections import plan_here

COMMAND = re.compile(r"`(python (?:train\.py|-m lockstep\.collectives)[^`]*)`")
SOURCES = (ROOT / "docs" / "sources.md").read_text()
COMMANDS: list[str] = COMMAND.findall("\n".join(line for line in SOURCES.splitlines() if line.startswith("|")))


def of_experiment(name: str) -> str:
    """Return its first command."""
    return next(line for line in COMMANDS if f"experiment={name}" in line)


def test_each_experiment_is_short_and_documented() -> None:
    """Those of a source have a row in sources.md, the others in commands.md."""
    assert len(COMMANDS) >= 15
    general = (ROOT / "docs" / "commands.md").read_text()
    names = {path.stem for path in (ROOT / "conf" / "experiment").iterdir()}
    of_sources = {name for name in names if any(f"experiment={name}" in line for line in COMMANDS)}
    assert names - of_sources == {"char_lm", "example", "optuna"}
    for name in names:
        assert len((ROOT / "conf" / "experiment" / f"{name}.yaml").read_text().splitlines()) < 20, name
        assert name in of_sources or f"experiment={name}" in general, name


def train(command: Command, line: str, *more: str) -> dict[str, Any]:
    ended = command.train(*shlex.split(line)[2:], *more)
    assert ended.status == 0, ended.err
    return metrics_in(ended.run_dir)


@pytest.mark.slow
def test_the_line_is_learned(command: Command) -> None:
    """The noise has variance 0.01; the answer is 2 and 3."""
    metrics = train(command, "python train.py experiment=linear_regression")
    assert abs(metrics["slope"] - 2) < 0.01
    assert abs(metrics["intercept"] - 3) < 0.01
    assert metrics["train/loss"] == pytest.approx(0.01, rel=0.05)


@pytest.mark.slow
def test_twice_seven_is_fourteen(command: Command) -> None:
    metrics = train(command, of_experiment("times_two"))
    assert metrics["predict/7"] == pytest.approx(14, abs=1e-3)
    assert metrics["gradient_sync"] == "ring"


@pytest.mark.slow
def test_points_are_classified(command: Command) -> None:
    metrics = train(command, of_experiment("toy_mlp"))
    assert (metrics["train/acc"], metrics["test/acc"], metrics["world_size"]) == (1.0, 1.0, 2)


@pytest.mark.slow
def test_sgd_by_hand_is_sgd(command: Command, tmp_path: Path) -> None:
    """Four ranks with five rows each, against a plain loop over all twenty; targets a millionth larger must show."""
    line, double = of_experiment("sgd_by_hand"), "precision=64-true"
    train(command, line, double)
    [checkpoint] = command.folder.glob("logs/train/*/checkpoints/last.ckpt")
    plan = plan_here([*shlex.split(line)[2:], double], tmp_path)
    weights = list(net_state(checkpoint).values())

    def distance(steps: int, factor: float = 1.0) -> float:
        """Return how far the run ended from a plain loop on targets times a factor."""
        module = prepared_module(plan)
        inputs, targets = create_data(plan.data, plan.seed).load()["train"]
        net = module.net
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.MSELoss()(net(inputs), targets * factor).backward()
            optimizer.step()
        return max(float((a - b.detach()).abs().max()) for a, b in zip(weights, net.parameters(), strict=True))

    assert distance(0) > 0.1
    assert distance(10, 1 + 1e-6) > 1e-10
    assert distance(10) < 1e-12
