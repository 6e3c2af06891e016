"""Plans: invalid ones are rejected in one sentence; values that are derived; copies by pickle and JSON."""

import dataclasses
import pickle

import pytest

from lockstep.base.config_error import ConfigError
from lockstep.plan.plan import Plan
from lockstep.plan.schemas import Raw
from tests.conftest import MakePlan

REFUSED = [
    (["tags=null"], "tags=null: it is a list", "tags=[a,b]"),
    (["devices=1.5"], "devices=1.5: it takes a whole number", "devices=1"),
    (["devices=2"], "devices=2: strategy=single trains on one device", "strategy=ddp"),
    (["strategy=ddp", "devices=1000000"], "devices=1000000: it must be from 1 to 1024", "devices=1"),
    (["batch_size=1e18"], "batch_size=1000000000000000000: it must be 1 or more, below 2^31", "batch_size=1"),
    (["gradient_clip_val=0"], "gradient_clip_val=0.0:", "null"),
    (["optimizer.lr=nan"], "optimizer._target_=torch.optim.Adam: it raises ValueError: Invalid learning rate: nan", ""),
    (["model.net.hidden=[]"], "model.net.hidden=[]:", "model.net.hidden=[30,20]"),
    (
        ["model=cnn", "data=points"],
        "model.net=CNN: it takes images, and the data has samples of shape (2,)",
        "model=mlp",
    ),
    (["process_group.backend=nccl"], "process_group.backend=nccl: nccl sends between GPUs alone", "gloo"),
    (["precision=16-mixed"], "precision=16-mixed: it needs a GPU", "precision=bf16-mixed"),
    (["drop_last=maybe"], "drop_last=maybe: it takes true or false", "drop_last=true"),
    (["data=points", "drop_last=true"], "drop_last=true:", "batch_size=5"),
    (["data=points", "data.samples=1"], "data.samples=1:", "data.samples=1000"),
    (["data=mnist", "data.samples=55001"], "data.samples=55001: it must be from 1 to 55000", "data.samples=5500"),
    (["scheduler=warmup_linear", "max_epochs=1"], "scheduler.warmup_steps=100: the run has 20 steps", "=2."),
    (["name=../up"], "name=../up:", "name=train"),
    (["+run_dir=here"], "run_dir=here: there is no such key", "--help"),
    (["~seed"], "seed is missing", "seed=VALUE"),
    (["strategy.name=ddpx"], "strategy.name=ddpx: there is no such option", "strategy.name=ddp, or another"),
    (["strategy=dp", "num_nodes=2"], "num_nodes=2: strategy=dp is one process on one machine", "strategy=ddp"),
    (["strategy=tensor_parallel", "strategy.plan=3"], "strategy.plan=3: it is a mapping", "'strategy.plan={"),
    (["strategy=model_parallel", "model=linear"], "model=Linear: strategy=model_parallel needs", "model=split_cnn"),
    (["strategy=model_parallel", "model=split_cnn", "devices=5"], "devices=5: model=SplitCNN has 4", "devices=4"),
    (["strategy=model_parallel", "model=split_cnn", "show_shapes=true"], "show_shapes=true: stages", "strategy=dp"),
    (["engine=raw", "engine.gradient_sync=rng"], "engine.gradient_sync=rng:", "engine.gradient_sync=ring"),
    (["process_group.timeout=0"], "process_group.timeout=0.0:", "process_group.timeout=60"),
    (["trainer=ddp"], "trainer=ddp: it is a group of keys", "write strategy=ddp devices=2."),
    (["+data.loader.num_workers=2"], "data.loader={num_workers:2}: Digits takes no such", "one of: batch_size, val"),
    (["process_group=gloo"], "process_group=gloo", "process_group.backend"),
    (["train=false", "test=false"], "test=false:", "train=true or test=true"),
    (["test=best", "train=false"], "test=best: only a run that trains has a best", "test=true."),
    (["train=false"], "ckpt_path=null:", "best.ckpt"),
    (["ckpt_path=nowhere.ckpt"], "nowhere.ckpt: there is no such file", "null"),
    (["+model.hiden=[3]"], "model.hiden=[3]: Classifier takes no such argument", "one of: net, optimizer, scheduler"),
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
