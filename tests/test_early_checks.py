"""Wrong arguments of optimizers, schedules and nets are refused before Lightning is imported."""

import subprocess
import sys
from typing import Any

import pytest

from lockstep.plan.schemas.target import Module
from lockstep.plan.targets.early_checks import check_early, is_light
from tests.conftest import require_refused

ADAM = {"_target_": "torch.optim.Adam", "_partial_": True, "lr": 0.1}
MLP = {"_target_": "lockstep.nets.MLP", "hidden": [3]}
CNN = {"_target_": "lockstep.nets.CNN", "sample_shape": [1]}


def module(**parts: Any) -> Module:
    return Module("MLP", "model", {"_target_": "lockstep.models.Classifier", "net": MLP, "optimizer": ADAM, **parts})


WRONG: dict[str, Module] = {
    "optimizer.lr=abc: Adam takes a number": module(optimizer={**ADAM, "lr": "abc"}),
    "optimizer.rate=1: Adam takes no such argument": module(optimizer={**ADAM, "rate": 1}),
    "optimizer._target_=torch.optim.Adam: it raises ValueError: Invalid learning rate: -1": module(
        optimizer={**ADAM, "lr": -1}
    ),
    "scheduler.warmup_fraction=a: one_cycle takes a number": module(
        scheduler={"_target_": "lockstep.models.schedulers.one_cycle", "_partial_": True, "warmup_fraction": "a"}
    ),
    "model.net.hidden=[]: it lists layer sizes": module(net={**MLP, "hidden": []}),
    "model.net.width=1: MLP takes no such argument": module(net={**MLP, "width": 1}),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_what_is_wrong(sentence: str) -> None:
    require_refused(sentence, lambda: check_early(WRONG[sentence]))


@pytest.mark.slow
def test_without_lightning_or_the_rest_of_torch() -> None:
    """Neither Lightning nor torch._dynamo is imported."""
    script = f"""
import sys
from lockstep.plan.schemas.target import Module
from lockstep.plan.targets.early_checks import check_early
call = {{"_target_": "lockstep.models.Classifier", "net": {MLP}, "optimizer": {ADAM}}}
check_early(Module("MLP", "model", call))
assert not {{"lightning", "lightning.pytorch", "lockstep.datamodules", "torch._dynamo"}} & sys.modules.keys()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_what_depends_on_the_data_waits_for_it() -> None:
    check_early(module(net=CNN))


def test_code_of_the_users_is_not_imported() -> None:
    theirs = {"_target_": "mine.Net"}
    sequential = {"_target_": "torch.nn.Sequential", "_args_": [{"_target_": "torch.nn.ReLU"}, theirs]}
    hub = {"_target_": "torch.hub.load", "repo_or_dir": "mine"}
    assert not any(map(is_light, (theirs, sequential, hub, {**MLP, "hidden": theirs}, {"hidden": [3]}, None)))
    check_early(module(net=sequential, optimizer={**theirs, "_partial_": True}, scheduler=theirs))
    assert "mine" not in sys.modules
