"""A strategy is one file and one YAML: nobody else asks for its name, and a new one takes part by itself."""

import shutil
import sys
from pathlib import Path

import pytest

from lockstep.strategies import STRATEGIES
from tests.comparing import metrics_in
from tests.conftest import ROOT, Command, Ended

SRC = ROOT / "src" / "lockstep"
BESIDE = ("strategies", "collectives")
OTHER_MEANINGS = {
    **{name: {"ddp"} for name in ("plan/schemas/run.py", "plan/schemas/target.py", "raw/average.py")},
    "launch/start.py": {"single"},
    "check/command.py": {"ddp"},
    "check/lockstep_runs.py": {"single", "virtual"},
    "check/report.py": {"virtual"},
    "runs/recorder.py": {"ddp", "fsdp", "single"},
}
"""A way to average gradients; the world of a process that only inspects; the runs of a check, and of other programs."""


MODULES = {f"lockstep.strategies.{path.stem}" for path in (SRC / "strategies").glob("*.py")}
MODULES -= {"lockstep.strategies.strategy", "lockstep.strategies.__init__"}


def asked(source: str) -> set[str]:
    """The names of strategies that a file has as strings, and their modules."""
    names = {name for name in STRATEGIES if f'"{name}"' in source}
    return names | {name for name in MODULES if f"from {name} import" in source}


def test_no_other_module_asks_for_a_strategys_name() -> None:
    files = (path for path in SRC.rglob("*.py") if path.relative_to(SRC).parts[0] not in BESIDE)
    names_by_file = {str(path.relative_to(SRC)): asked(path.read_text()) for path in files}
    assert {path: names for path, names in names_by_file.items() if names} == OTHER_MEANINGS


@pytest.mark.parametrize(
    "source",
    [
        'if plan.strategy.name == "ddp": pass',
        "from lockstep.strategies.single import Single",
    ],
)
def test_the_rule_catches_who_asks(source: str) -> None:
    assert asked(source)


TOY = '''"""Ranks that average their gradients by hand."""

from dataclasses import dataclass
from typing import Literal

from lockstep.strategies.strategy import Strategy


@dataclass(frozen=True)
class Toy(Strategy):
    name: Literal["toy"]
    way: Literal["one", "all"]
    distributed = True

    def rules(self, plan):
        yield not plan.sync_batchnorm, "sync_batchnorm", "not here", "sync_batchnorm=false"

    def gradient_sync(self, plan):
        return self.way

    def lightning(self, plan):
        from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
        from lightning.pytorch.strategies import DDPStrategy

        from torch import distributed

        class ToyStrategy(DDPStrategy):
            def configure_ddp(strategy):
                pass

            def post_backward(strategy, closure_loss):
                for parameter in strategy.model.parameters():
                    distributed.all_reduce(parameter.grad)
                    parameter.grad /= plan.devices

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
    (command.folder / "conf" / "strategy" / "toy.yaml").write_text("name: toy\nway: one\n")
    return command.folder


@pytest.mark.slow
def test_a_new_strategy_is_one_file_and_one_yaml(checkout: Path, command: Command) -> None:
    """It trains to the weights of ddp; its start, SLURM's count and compare know it."""

    def python(*words: str) -> Ended:
        return command(sys.executable, *words, PYTHONPATH=str(checkout / "src"))

    run = ["devices=2", "model.net.hidden=[16]", "batch_size=300", "max_epochs=1", "logger=none", "accelerator=cpu"]
    for strategy in ("toy", "ddp"):
        trained = python("train.py", *run, f"strategy={strategy}", "threads=1", f"hydra.run.dir={strategy}")
        assert trained.status == 0, trained.err
    compared = python("-m", "lockstep.compare", "toy", "ddp")
    assert compared.status == 0, compared.out
    metrics, expected = (metrics_in(checkout / strategy) for strategy in ("toy", "ddp"))
    assert (metrics["strategy"], metrics["world_size"], metrics["gradient_sync"]) == ("toy", 2, "one")
    assert metrics["digest"] == expected["digest"]
    counted = (
        "from lockstep.command.compose import RESOLVERS as r; of = r['ranks_of']; print(of('toy', 4), of('single', 1))"
    )
    assert python("-c", counted).out.split() == ["4", "1"]
