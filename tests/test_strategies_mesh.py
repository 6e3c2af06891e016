"""strategy=mesh: masks, checkpoints and sizes; that it computes what `single` does is in the table."""

import re
from pathlib import Path

import pytest
import torch

from lockstep.base.config_error import ConfigError
from lockstep.runs.compare import compare
from lockstep.strategies.strategy import Strategy
from tests.comparing import require_close
from tests.conftest import IN_PROCESS
from tests.inspections import plan_here
from tests.test_strategies_tensor_parallel import JOBS, saved, start

pytestmark = [*IN_PROCESS, pytest.mark.timeout(900)]

MESH = ("strategy=mesh", "strategy.shard=2", "strategy.tensor=2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mesh")
    start(folder, 1, {"stopped mlp 1": ("mlp", ())})
    start(folder, 2, {"dropped": ("dropped", ("strategy=ddp",))})
    last = f"ckpt_path='{folder}/stopped mlp 1/checkpoints/last.ckpt'"
    meshes = {"stopped mlp mesh": ("mlp", MESH), "saved again by a mesh": ("mlp", (*MESH, last))}
    start(folder, 4, {**meshes, "dropped mesh": ("dropped", MESH)})
    last = f"ckpt_path='{folder}/stopped mlp mesh/checkpoints/last.ckpt'"
    start(folder, 1, {"saved again by single": ("mlp", (last,))})
    return folder


@pytest.mark.slow
def test_masks_are_those_of_ddp_with_as_many_shares(runs: Path) -> None:
    require_close(runs / "dropped", runs / "dropped mesh")
    assert str(compare(runs / "dropped", runs / "dropped mesh").tolerance) == "within 1e-10"


@pytest.mark.slow
def test_checkpoints_of_single_resume_and_are_resumed(runs: Path) -> None:
    for first, again in (("stopped mlp 1", "a mesh"), ("stopped mlp mesh", "single")):
        states = [saved(runs / first), saved(runs / f"saved again by {again}", "again.ckpt")]
        torch.testing.assert_close(*states, rtol=0, atol=0)


def strategy_of(tmp_path: Path, *words: str) -> Strategy:
    return plan_here([*JOBS["mlp"], "strategy=mesh", "accelerator=cpu", *words], tmp_path).strategy


def test_sizes_are_refused_that_are_not_those_of_the_devices(tmp_path: Path) -> None:
    sentence = "devices=4: strategy.replicate=1 × shard=1 × tensor=2 is 2; write strategy.shard=2."
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        strategy_of(tmp_path, "devices=4", "strategy.tensor=2")
    with pytest.raises(
        ConfigError, match=r"^strategy.plan.net.layers.0=colwise: 64 ranks do not divide its out_features=32"
    ):
        strategy_of(tmp_path, "devices=64", "strategy.tensor=2", "strategy.shard=32")
