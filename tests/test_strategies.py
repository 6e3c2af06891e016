"""A strategy is one file and one YAML: nobody else asks for its name, and a new one takes part by itself."""

import ast
import json
import shutil
import sys
from pathlib import Path

import pytest

from lockstep.strategies import STRATEGIES
from tests.comparing import metrics_in
from tests.conftest import ROOT, Command, Ended

SRC = ROOT / "src" / "lockstep"
BESIDE = ("strategies", "collectives")
OTHER_MEANINGS = {"schemas/run.py": {"ddp"}, "schemas/target.py": {"ddp"}, "launch/child.py": {"single"}}
"""A way to average gradients; the world of a process that only inspects."""


def asked(source: str) -> set[str]:
    """The names of strategies that a file has as strings, and their classes."""
    nodes = [*ast.walk(ast.parse(source))]
    names = {str(node.value) for node in nodes if isinstance(node, ast.Constant) and node.value in STRATEGIES}
    modules = {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    files = {f"lockstep.strategies.{path.stem}" for path in (SRC / "strategies").glob("*.py")}
    return names | (modules & (files - {"lockstep.strategies.strategy", "lockstep.strategies.__init__"}))


def test_no_other_module_asks_for_a_strategys_name() -> None:
    files = (path for path in SRC.rglob("*.py") if path.relative_to(SRC).parts[0] not in BESIDE)
    names_by_file = {str(path.relative_to(SRC)): asked(path.read_text()) for path in files}
    assert {path: names for path, names in names_by_file.items() if names} == OTHER_MEANINGS


@pytest.mark.parametrize(
    "source",
    [
        'if plan.strategy.name == "ddp": pass',
        'one = name.startswith("ddp")',
        'kinds = {"model_parallel": 1}',
        'match plan.strategy.name:\n    case "dp":\n        pass',
        "from lockstep.strategies.single import Single",
    ],
)
def test_the_rule_catches_who_asks(source: str) -> None:
    assert asked(source)


TOY = '''"""Ranks that average their gradients by hand."""

from dataclasses import dataclass
from typing import Literal

from lockstep.strategies.strategy import Strategy, Wrapped


@dataclass(frozen=True)
class Toy(Strategy):
    name: Literal["toy"]
    way: Literal["bucket", "ring"]
    distributed = True

    def rules(self, plan):
        yield not plan.sync_batchnorm, "sync_batchnorm", "not here", "sync_batchnorm=false"

    def gradient_sync(self, plan):
        return self.way

    def wrap(self, plan, module):
        from lockstep.parallel.reduce import average_gradients

        plain = super().wrap(plan, module)
        return Wrapped(plain.forward, lambda: average_gradients(self.way, module, False))

    def lightning(self, plan):
        from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
        from lightning.pytorch.strategies import DDPStrategy

        from lockstep.parallel.reduce import average_gradients

        class ToyStrategy(DDPStrategy):
            def configure_ddp(strategy):
                pass

            def post_backward(strategy, closure_loss):
                average_gradients(self.way, strategy.model, False)

        return ToyStrategy(cluster_environment=TorchElasticEnvironment())
'''


@pytest.fixture
def checkout(command: Command) -> Path:
    """A copy of the tree with a strategy more: one file, one YAML."""
    for folder in ("src", "conf"):
        shutil.copytree(
            ROOT / folder, command.folder / folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    shutil.copy(ROOT / "train.py", command.folder)
    (command.folder / "src" / "lockstep" / "strategies" / "toy.py").write_text(TOY)
    (command.folder / "conf" / "strategy" / "toy.yaml").write_text("name: toy\nway: bucket\n")
    return command.folder


def test_a_new_strategy_is_one_file_and_one_yaml(checkout: Path, command: Command) -> None:
    """Both engines train by it and agree; so do its start, SLURM's count and compare."""

    def python(*words: str) -> Ended:
        return command(sys.executable, *words, PYTHONPATH=str(checkout / "src"))

    run = ["strategy=toy", "devices=2", "model.net.hidden=[16]", "batch_size=300", "max_epochs=1", "logger=none"]
    trained = python("train.py", *run, "accelerator=cpu", "threads=1", "engine=both", "hydra.run.dir=toy")
    assert trained.status == 0, trained.err
    assert json.loads((checkout / "toy" / "comparison.json").read_text())["verdict"] == "identical"
    metrics = metrics_in(checkout / "toy" / "raw")
    assert (metrics["strategy"], metrics["world_size"], metrics["gradient_sync"]) == ("toy", 2, "bucket")
    counted = "from lockstep.command_line.compose import ranks_of; print(ranks_of('toy', 4), ranks_of('single', 1))"
    assert python("-c", counted).out.split() == ["4", "1"]
