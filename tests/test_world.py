"""The ranks of a run as the launcher sees them."""

from dataclasses import replace

import pytest

from lockstep.config_error import ConfigError
from lockstep.schemas import ProcessGroup
from lockstep.schemas.coerce import coerce
from lockstep.world import World
from tests.conftest import MakePlan

AUTO = ProcessGroup("auto", "auto", 60.0)


def test_ranks_are_processes_that_share_a_batch(make_plan: MakePlan) -> None:
    devices = ("devices=2", "model=split_cnn")
    worlds = [make_plan(f"strategy={name}", *devices).world for name in ("ddp", "ddp_spawn", "dp", "model_parallel")]
    assert [(world.distributed, world.world_size, world.start) for world in worlds] == [
        (True, 2, "elastic"),
        (True, 2, "spawn"),
        (False, 1, "spawn"),
        (False, 1, "spawn"),
    ]


def on_gpus(**options: object) -> World:
    return replace(World("ddp", "elastic", True, 2, 1, "gpu", False, 1, AUTO, "run"), **options)  # type: ignore[arg-type]


def test_nccl_takes_a_gpu_each() -> None:
    assert on_gpus().backend == "nccl"
    assert on_gpus(share_device=True).backend == "gloo"
    assert on_gpus(accelerator="cpu").backend == "gloo"
    assert on_gpus(process_group=replace(AUTO, backend="gloo")).backend == "gloo"
    nccl = replace(AUTO, backend="nccl")
    assert on_gpus(process_group=nccl).backend == "nccl"


@pytest.mark.parametrize("way", ["udp://a:1", "tcp://a", "tcp://a:0", "tcp://:80", "file://", "", "File"])
def test_invalid_init_methods(way: str) -> None:
    with pytest.raises(ConfigError, match=r"process_group.init_method=.*: there is no such method; write .*=auto"):
        coerce(ProcessGroup, "process_group", {**vars(AUTO), "init_method": way})


@pytest.mark.parametrize("way", ["auto", "file", "env", "tcp://127.0.0.1:29500", "tcp://node-7:1", "file:///a/b"])
def test_init_methods(way: str) -> None:
    assert coerce(ProcessGroup, "process_group", {**vars(AUTO), "init_method": way}).init_method == way
