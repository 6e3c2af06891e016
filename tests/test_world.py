"""The ranks of a run as the launcher sees them, and their devices."""

from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.base.config_error import ConfigError
from lockstep.launch import machine
from lockstep.launch.machine import resolve_accelerator
from lockstep.plan.schemas import ProcessGroup
from lockstep.plan.world import World
from lockstep.strategies.ddp import DDP
from lockstep.strategies.dp import DP
from lockstep.strategies.single import Single
from tests.conftest import MakePlan

AUTO = ProcessGroup("auto", 60.0)


def test_ranks_are_processes_that_share_a_batch(make_plan: MakePlan) -> None:
    devices = ("devices=2", "model=split_cnn")
    worlds = [make_plan(f"strategy={name}", *devices).world for name in ("ddp", "ddp_spawn", "dp", "model_parallel")]
    assert [(world.distributed, world.world_size) for world in worlds] == [
        (True, 2),
        (True, 2),
        (False, 1),
        (False, 1),
    ]


def on_gpus(**options: object) -> World:
    return replace(World("ddp", True, 2, 1, "gpu", False, 1, AUTO, "run"), **options)  # type: ignore[arg-type]


def test_nccl_takes_a_gpu_each() -> None:
    assert on_gpus().backend == "nccl"
    assert on_gpus(share_device=True).backend == "gloo"
    assert on_gpus(accelerator="cpu").backend == "gloo"
    assert on_gpus(process_group=replace(AUTO, backend="gloo")).backend == "gloo"
    nccl = replace(AUTO, backend="nccl")
    assert on_gpus(process_group=nccl).backend == "nccl"


SINGLE = Single("single")


@pytest.fixture(params=[0, 2])
def gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(machine, "gpu_count", lambda: request.param)
    return int(request.param)


def test_auto_takes_gpus_where_there_are_any(gpus: int) -> None:
    assert resolve_accelerator("auto", 1, SINGLE) == ("gpu" if gpus else "cpu")
    assert resolve_accelerator("cpu", 64, DDP("ddp", share_device=False)) == "cpu"
    assert resolve_accelerator("auto", 3, DDP("ddp", share_device=True)) == ("gpu" if gpus else "cpu")


def test_gpus_that_are_not_there_are_refused(gpus: int) -> None:
    if gpus == 0:
        with pytest.raises(ConfigError, match=r"accelerator=gpu: torch sees no GPU.*write accelerator=cpu"):
            resolve_accelerator("gpu", 1, SINGLE)
    else:
        with pytest.raises(ConfigError, match=r"devices=3: torch sees 2 GPUs.*write devices=2, or accelerator=cpu"):
            resolve_accelerator("auto", 3, DP("dp"))
        hint = r"write devices=2, strategy.share_device=true, or accelerator=cpu"
        with pytest.raises(ConfigError, match=hint):
            resolve_accelerator("auto", 3, DDP("ddp", share_device=False))


def test_the_count_is_torchs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Torch is not asked where Linux has no GPU's device file; /dev's are looked for in a folder of this test."""
    monkeypatch.setattr(machine, "Path", lambda _: tmp_path)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 5)
    assert machine.gpu_count() == 0
    (tmp_path / "nvidia0").touch()
    assert machine.gpu_count() == 5
