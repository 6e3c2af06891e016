"""Plans: invalid ones are rejected in one sentence; values that are derived; copies by pickle and JSON."""

import dataclasses
import pickle

import pytest

from lockstep.base.config_error import ConfigError
from lockstep.plan.plan import Plan
from lockstep.plan.schemas import Raw
from tests.conftest import MakePlan

REFUSED = [
    (["devices=1.5"], "devices=1.5: it takes a whole number", "devices=1"),
    (["devices=2"], "devices=2: strategy=single trains on one device", "strategy=ddp"),
    (["strategy=ddp", "devices=1000000"], "devices=1000000: it must be from 1 to 1024", "devices=1"),
    (["batch_size=1e18"], "batch_size=1000000000000000000: it must be 1 or more, below 2^31", "batch_size=1"),
    (["process_group.backend=nccl"], "process_group.backend=nccl: nccl sends between GPUs alone", "gloo"),
    (["precision=16-mixed"], "precision=16-mixed: it needs a GPU", "precision=bf16-mixed"),
    (["data=points", "drop_last=true"], "drop_last=true:", "batch_size=5"),
    (["name=../up"], "name=../up:", "name=train"),
    (["~seed"], "seed is missing", "seed=VALUE"),
    (["strategy=dp", "num_nodes=2"], "num_nodes=2: strategy=dp is one process on one machine", "strategy=ddp"),
    (["strategy=tensor_parallel", "strategy.plan=3"], "strategy.plan=3: it is a mapping", "'strategy.plan={"),
    (["strategy=model_parallel", "model=split_cnn", "devices=5"], "devices=5: model=SplitCNN has 4", "devices=4"),
    (["trainer=ddp"], "trainer=ddp: it is a group of keys", "write strategy=ddp devices=2."),
    (["train=false", "test=false"], "test=false:", "train=true or test=true"),
    (["test=best", "train=false"], "test=best: only a run that trains has a best", "test=true."),
    (["data=points", "data.samples=1e3"], "data.samples=1000.0: Points takes a whole number", "data.samples=1,"),
]
"""One of each kind of rule."""


def lr(plan: Plan) -> float:
    rate = plan.summary()["lr"]
    assert isinstance(rate, float)
    return rate


@pytest.mark.parametrize(("overrides", "start", "hint"), REFUSED, ids=[" ".join(case[0])[:60] for case in REFUSED])
def test_refused(make_plan: MakePlan, overrides: list[str], start: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_plan("accelerator=cpu", *overrides)
    sentence = str(raised.value)
    assert start in sentence
    assert hint in sentence.partition(";")[2]
    assert "\n" not in sentence


def test_a_plan_is_frozen_and_travels(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp", "devices=2", "data=points", "data.samples=1000", "optimizer.lr=0.1")
    assert (plan.batch_size, lr(plan), plan.data.train_samples) == (64, 0.1, 1000)
    assert pickle.loads(pickle.dumps(plan)) == plan
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.devices = 3  # type: ignore[misc]


def test_gpu_tensors_do_not_go_round_a_ring_of_gloo(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp", "devices=2", "strategy.share_device=true", "engine=raw")
    shared = dataclasses.replace(plan, accelerator="gpu")
    with pytest.raises(
        ConfigError, match=r"engine.gradient_sync=ring: gloo cannot .*write engine.gradient_sync=bucket"
    ):
        dataclasses.replace(shared, engine=Raw("raw", "ring"))
    dataclasses.replace(plan, engine=Raw("raw", "ring"))
    with pytest.raises(ConfigError, match=r"process_group.backend=nccl: nccl takes no two ranks on one GPU; write "):
        dataclasses.replace(shared, process_group=dataclasses.replace(plan.process_group, backend="nccl"))


def test_all_devices_are_taken_as_in_lightning(make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.command.build.gpu_count", lambda: 3)
    assert make_plan("devices=auto", "accelerator=cpu").devices == 1
    assert make_plan("strategy=ddp", "devices=auto", "accelerator=cpu").devices == 1
    monkeypatch.setattr("lockstep.launch.machine.gpu_count", lambda: 3)
    plan = make_plan("strategy=ddp", "devices=auto", "batch_size_per_device=8")
    assert (plan.devices, plan.batch_size, plan.accelerator) == (3, 24, "gpu")
    assert "devices: 3\n" in plan.config


def test_devices_that_do_not_share_a_batch_scale_nothing(make_plan: MakePlan) -> None:
    """Replicas share the batch, stages do not; only ddp has several ranks."""
    derived = ("optimizer.lr=0.1", "scale_lr=true", "batch_size_per_device=8", "devices=2", "model=split_cnn")
    seen = {}
    for strategy in ("ddp", "dp", "model_parallel"):
        plan = make_plan(f"strategy={strategy}", *derived)
        seen[strategy] = (lr(plan), plan.batch_size, plan.world_size)
    assert seen == {"ddp": (0.2, 16, 2), "dp": (0.2, 16, 1), "model_parallel": (0.1, 8, 1)}
