"""Wrong arguments of optimizers, schedules, nets and data are refused before Lightning is imported."""

import subprocess
import sys
from typing import Any

import pytest

from lockstep.schemas.target import Data, Module
from lockstep.targets.early_checks import check_early, is_light
from tests.conftest import require_refused

ADAM = {"_target_": "torch.optim.Adam", "_partial_": True, "lr": 0.1}
MLP = {"_target_": "lockstep.nets.MLP", "hidden": [3]}
CNN = {"_target_": "lockstep.nets.CNN", "sample_shape": [1]}
NONE = Data("none", "data", {})


def module(**parts: Any) -> Module:
    return Module("MLP", "model", {"_target_": "lockstep.models.Classifier", "net": MLP, "optimizer": ADAM, **parts})


def data(name: str, **arguments: Any) -> Data:
    return Data(name, "data", {"_target_": f"lockstep.datamodules.{name}", **arguments})


WRONG: dict[str, tuple[Module, Data]] = {
    "optimizer.lr=abc: Adam takes a number": (module(optimizer={**ADAM, "lr": "abc"}), NONE),
    "optimizer.rate=1: Adam takes no such argument": (module(optimizer={**ADAM, "rate": 1}), NONE),
    "optimizer._target_=torch.optim.Adam: it raises ValueError: Invalid learning rate: -1": (
        module(optimizer={**ADAM, "lr": -1}),
        NONE,
    ),
    "scheduler.warmup_fraction=a: one_cycle takes a number": (
        module(scheduler={"_target_": "lockstep.schedulers.one_cycle", "_partial_": True, "warmup_fraction": "a"}),
        NONE,
    ),
    "model.net.hidden=[]: it lists layer sizes": (module(net={**MLP, "hidden": []}), NONE),
    "model.net.width=1: MLP takes no such argument": (module(net={**MLP, "width": 1}), NONE),
    "data.val_size=70000: it must be from 0 to 59999": (module(), data("MNIST", val_size=70_000)),
    "data.samples=1: it must be 2 or more": (module(), data("Points", samples=1)),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_what_is_wrong(sentence: str) -> None:
    require_refused(sentence, lambda: check_early(*WRONG[sentence]))


def test_without_lightning_or_the_rest_of_torch() -> None:
    """Neither Lightning nor torch._dynamo is imported, and nothing of the stand-in is left."""
    script = f"""
import sys
from lockstep.schemas.target import Data, Module
from lockstep.targets.early_checks import check_early
call = {{"_target_": "lockstep.models.Classifier", "net": {MLP}, "optimizer": {ADAM}}}
check_early(Module("MLP", "model", call), Data("MNIST", "data", {{"_target_": "lockstep.datamodules.MNIST"}}))
assert not {{"lightning", "lightning.pytorch", "lockstep.datamodules", "torch._dynamo"}} & sys.modules.keys()
from lockstep.datamodules import MNIST
assert any(base.__module__ == "lightning.pytorch.core.datamodule" for base in MNIST.__mro__)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_what_depends_on_the_data_waits_for_it() -> None:
    check_early(module(net=CNN), NONE)


def test_code_of_the_users_is_not_imported() -> None:
    theirs = {"_target_": "mine.Net"}
    sequential = {"_target_": "torch.nn.Sequential", "_args_": [{"_target_": "torch.nn.ReLU"}, theirs]}
    hub = {"_target_": "torch.hub.load", "repo_or_dir": "mine"}
    assert not any(map(is_light, (theirs, sequential, hub, {**MLP, "hidden": theirs}, {"hidden": [3]}, None)))
    check_early(module(net=sequential, optimizer={**theirs, "_partial_": True}, scheduler=theirs), data("Datasets"))
    assert "mine" not in sys.modules
