"""Plans: invalid ones are rejected in one sentence; values that are derived; copies by pickle and JSON."""

import dataclasses
import pickle

import pytest

from lockstep.config_error import ConfigError
from lockstep.schemas import Raw
from lockstep.schemas.optimizer import DEFAULT
from lockstep.schemas.plan_json import from_json, to_json
from tests.conftest import ROOT, MakePlan

REFUSED = [
    (["tags=null"], "tags=null: it is a list", "tags=[a,b]"),
    (["devices=1.5"], "devices=1.5: it takes a whole number", "devices=1"),
    (["devices=2"], "devices=2: strategy=single trains on one device", "strategy=ddp"),
    (["strategy=ddp", "devices=3"], "batch_size=64: 3 ranks", "batch_size=63 or batch_size=66"),
    (["strategy=ddp", "devices=64", "batch_size=63"], "devices=64: batch_size=63 is less", "devices=63 or fewer"),
    (["strategy=ddp", "devices=1000000"], "devices=1000000: this machine has", "devices=64, or fewer"),
    (["max_epochs=1e30"], "it takes a whole number below 2^63", "max_epochs=1"),
    (["batch_size=1e18"], "batch_size=1000000000000000000: it must be 1 or more, below 2^31", "batch_size=1"),
    (["gradient_clip_val=0"], "gradient_clip_val=0.0:", "null"),
    (["optimizer.lr=nan"], "optimizer.lr=nan: it takes a number below 1e300", "optimizer.lr=0.1"),
    (["model.net.hidden=[]"], "model.net.hidden=[]:", "model.net.hidden=[30,20]"),
    (["model.net.hidden=3"], "model.net.hidden=3: it is a list", "model.net.hidden=[128,64]"),
    (["model=lenet", "model.dropout=1.5"], "model.dropout=1.5:", "model.dropout=0.5"),
    (["model=cnn", "data=points"], "model=cnn: it takes images, and data=points has none", "model=mlp"),
    (["precision=16-mixed"], "precision=16-mixed: it needs a GPU", "precision=bf16-mixed"),
    (["drop_last=maybe"], "drop_last=maybe: it takes true or false", "drop_last=true"),
    (["data=points", "drop_last=true"], "drop_last=true:", "batch_size=5"),
    (["data=points", "data.samples=1"], "data.samples=1:", "data.samples=1000"),
    (["data=mnist", "data.samples=55001"], "data=mnist: its splits need more than its 60000", "smaller"),
    (["scheduler=warmup_linear", "max_epochs=1"], "scheduler.warmup_steps=100: the run has 20 steps", "=2."),
    (["name=../up"], "name=../up:", "name=train"),
    (["+run_dir=here"], "run_dir=here: there is no such key", "--help"),
    (["~seed"], "seed is missing", "seed=VALUE"),
    (["strategy.name=ddpx"], "strategy.name=ddpx: there is no such option", "strategy.name=ddp, or another"),
    (["strategy=dp", "num_nodes=2"], "num_nodes=2: strategy=dp is one process on one machine", "strategy=ddp"),
    (["strategy=dp", "sync_batchnorm=true"], "sync_batchnorm=true: each replica", "sync_batchnorm=false"),
    (["strategy=model_parallel"], "model=mlp: strategy=model_parallel needs a net with stages", "model=split_cnn"),
    (["strategy=model_parallel", "model=split_cnn", "devices=5"], "devices=5: model=split_cnn has 4", "devices=4"),
    (["strategy=model_parallel", "model=split_cnn", "show_shapes=true"], "show_shapes=true: stages", "strategy=dp"),
    (["engine=raw", "engine.gradient_sync=rng"], "engine.gradient_sync=rng:", "engine.gradient_sync=ring"),
    (["process_group.backend=mpi"], "process_group.backend=mpi: this torch was built without it", "backend=auto"),
    (["process_group.timeout=0"], "process_group.timeout=0.0:", "process_group.timeout=60"),
    (["trainer=ddp"], "trainer=ddp: it is a group of keys", "write strategy=ddp devices=2."),
    (["trainer=gpu"], "trainer=gpu: it is a group of keys", "write accelerator=gpu."),
    (["trainer=default"], "trainer=default: it is a group of keys", "write trainer.KEY=VALUE, or nothing."),
    (["+data._loader_.num_workers=2"], "there is no such key; write one", "--help lists"),
    (["process_group=gloo"], "process_group=gloo", "process_group.backend"),
    (["+process_group.size=2"], "process_group.size=2: there is no such key", "--help lists"),
    (["train=false", "test=false"], "test=false:", "train=true or test=true"),
    (["test=bset"], "test=bset: it is not one of the possible values (did you mean best?)", "write test=best"),
    (["test=best", "train=false"], "test=best: only a run that trains and saves checkpoints has a best", "test=true."),
    (["test=best", "trainer.barebones=true"], "test=best: only a run that trains and saves checkpoints", "test=true."),
    (["train=false"], "ckpt_path=null:", "best.ckpt"),
    (["ckpt_path=nowhere.ckpt"], "nowhere.ckpt: there is no such file", "null"),
    (["optimized_metric=val/acc", "data=points"], "optimized_metric=val/acc:", "train/loss, train/acc, test/loss"),
    (["loss_reduction=sum"], "loss_reduction=sum: the loss of a plain net is its task's", "loss_reduction=mean"),
    (["checkpoint.monitor=val/f2"], "checkpoint.monitor=val/f2: this run does not measure it", "val/acc, val/f1"),
    (["checkpoint.monitor=val/f1", "data.val_size=0"], "checkpoint.monitor=val/f1:", "train/loss, train/acc"),
    (["+model.hiden=[3]"], "model.hiden=[3]: there is no such key", "model.net.hidden=[3]"),
]
"""One of each kind of rule."""


@pytest.mark.parametrize(("overrides", "start", "hint"), REFUSED, ids=[" ".join(case[0])[:60] for case in REFUSED])
def test_refused(make_plan: MakePlan, overrides: list[str], start: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_plan("accelerator=cpu", *overrides)
    sentence = str(raised.value)
    assert start in sentence
    assert hint in sentence.split(";", 1)[1]
    assert "\n" not in sentence


def test_a_plan_is_frozen_and_travels(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp", "devices=2", "data=points", "data.samples=1e3", "optimizer.lr=0.1")
    assert (plan.batch_size, plan.optimizer.lr, plan.data.train_samples) == (64, 0.1, 1000)
    assert pickle.loads(pickle.dumps(plan)) == plan
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.devices = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        *((f"experiment={path.stem}",) for path in sorted((ROOT / "conf" / "experiment").glob("*.yaml"))),
        ("engine=raw", "strategy=ddp", "devices=2", "optimizer=adamw", "scheduler=warmup_linear", "logger=csv"),
        ("strategy=model_parallel", "devices=2", "model=split_cnn", "data=mnist", "checkpoint.every_n_steps=3"),
    ],
)
def test_a_plan_travels_as_json(overrides: tuple[str, ...], make_plan: MakePlan) -> None:
    plan = make_plan("accelerator=cpu", *overrides)
    assert from_json(to_json(plan)) == plan


def test_gpu_tensors_do_not_go_round_a_ring_of_gloo(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp", "devices=2", "strategy.share_device=true", "engine=raw")
    shared = dataclasses.replace(plan, accelerator="gpu")
    with pytest.raises(
        ConfigError, match=r"engine.gradient_sync=ring: gloo cannot .*write engine.gradient_sync=bucket"
    ):
        dataclasses.replace(shared, engine=Raw("raw", "ring"))
    dataclasses.replace(plan, engine=Raw("raw", "ring"))


def test_devices_that_do_not_share_a_batch_scale_nothing(make_plan: MakePlan) -> None:
    """Replicas share the batch, stages do not; only ddp has several ranks."""
    derived = ("optimizer.lr=0.1", "scale_lr=true", "batch_size_per_device=8", "devices=2", "model=split_cnn")
    seen = {}
    for strategy in ("ddp", "dp", "model_parallel"):
        plan = make_plan(f"strategy={strategy}", *derived)
        seen[strategy] = (plan.optimizer.lr, plan.batch_size, plan.world_size)
    assert seen == {"ddp": (0.2, 16, 2), "dp": (0.2, 16, 1), "model_parallel": (0.1, 8, 1)}


def test_threads_are_the_cores_shared_and_at_least_one(make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.build.usable_cores", lambda: 8)
    assert make_plan().threads == 8
    assert make_plan("strategy=ddp", "devices=3", "batch_size=12").threads == 2
    assert make_plan("strategy=ddp", "devices=16").threads == 1
    assert make_plan("threads=5").threads == 5


def test_the_default_monitor(make_plan: MakePlan) -> None:
    assert make_plan().monitor == ("val/acc", "max")
    assert make_plan("model=linear", "data=line").monitor == ("val/loss", "min")
    assert make_plan("data=points").monitor == ("train/loss", "min")
    assert make_plan("checkpoint.monitor=val/f1").monitor == ("val/f1", "max")
    assert make_plan("checkpoint.monitor=train/loss").monitor == ("train/loss", "min")


def test_the_default_optimizer_is_that_of_conf(make_plan: MakePlan) -> None:
    assert make_plan().optimizer == DEFAULT


def test_summaries_have_the_same_keys(make_plan: MakePlan) -> None:
    plans = [make_plan(), make_plan("data=line", "model=linear", "optimizer=sgd", "logger=none")]
    assert plans[0].summary().keys() == plans[1].summary().keys()
