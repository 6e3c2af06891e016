"""Plans that cannot be are refused, each in one sentence with the key, the value and what to write instead."""

import dataclasses
import pickle

import pytest

from lockstep.config_error import ConfigError
from lockstep.schemas import Raw
from lockstep.schemas.plan_json import from_json, to_json
from tests.conftest import ROOT, MakePlan

REFUSED = [
    (["devices=0"], "devices=0:", "devices=1"),
    (["devices=-1"], "devices=-1:", "devices=1"),
    (["devices=0", "scale_lr=true"], "devices=0:", "devices=1"),
    (["devices=-1", "batch_size_per_device=8"], "devices=-1:", "devices=1"),
    (["devices=two"], "devices=two: it takes a whole number", "devices=1"),
    (["devices=1.5"], "devices=1.5: it takes a whole number", "devices=1"),
    (["devices=2"], "devices=2: strategy=single trains on one device", "strategy=ddp"),
    (["num_nodes=2"], "num_nodes=2: strategy=single", "num_nodes=1"),
    (["strategy=ddp", "devices=3"], "batch_size=64: 3 ranks", "batch_size=63 or batch_size=66"),
    (["strategy=ddp", "devices=3", "batch_size=2"], "devices=3: batch_size=2 is less", "batch_size=3."),
    (["strategy=ddp", "devices=64", "batch_size=63"], "devices=64: batch_size=63 is less", "devices=63 or fewer"),
    (["strategy=ddp", "devices=1000000"], "devices=1000000: this machine has", "devices=64, or fewer"),
    (["strategy=ddp_spawn", "devices=1000000", "batch_size=1000000"], "devices=1000000: this machine has", "or fewer"),
    (["strategy=dp", "devices=100000", "batch_size=100000"], "devices=100000: this machine has", "or fewer"),
    (["threads=100000"], "threads=100000: this machine has", "threads=64, or fewer"),
    (["max_epochs=1e30"], "its absolute value must be below 2^63", "max_epochs=1"),
    (["batch_size=1e18"], "batch_size=1000000000000000000: it must be below 2^31", "batch_size=1"),
    (["batch_size=0"], "batch_size=0:", "batch_size=1"),
    (["batch_size_per_device=0"], "batch_size_per_device=0:", "batch_size_per_device=1"),
    (["max_epochs=-1"], "max_epochs=-1:", "max_epochs=1"),
    (["threads=0"], "threads=0:", "threads=1"),
    (["seed=-1"], "seed=-1:", "seed=42"),
    (["accumulate_grad_batches=0"], "accumulate_grad_batches=0:", "accumulate_grad_batches=1"),
    (["gradient_clip_val=0"], "gradient_clip_val=0.0:", "null"),
    (["optimizer.lr=nan"], "optimizer.lr=nan: it takes a finite number", "optimizer.lr=0.1"),
    (["optimizer.lr=-1"], "optimizer.lr=-1.0:", "optimizer.lr=0.01"),
    (["optimizer=sgd", "optimizer.momentum=1"], "optimizer.momentum=1.0:", "optimizer.momentum=0.5"),
    (["model.hidden=[]"], "model.hidden=[]:", "model.hidden=[30,20]"),
    (["model.hidden=3"], "model.hidden=3: it is a list", "model.hidden=[128,64]"),
    (["model=lenet", "model.dropout=1.5"], "model.dropout=1.5:", "model.dropout=0.5"),
    (["model=cnn", "model.norm=layer"], "model.norm=layer:", "one of batch, none"),
    (["model=cnn", "data=points"], "model=cnn: it takes images, and data=points has none", "model=mlp"),
    (["model=split_cnn", "data=line"], "model=split_cnn: it takes images", "model=mlp or model=linear"),
    (["precision=bf16"], "precision=bf16:", "precision=bf16-mixed"),
    (["precision=16-mixed"], "precision=16-mixed: it needs a GPU", "precision=bf16-mixed"),
    (["accelerator=tpu"], "accelerator=tpu:", "cpu"),
    (["drop_last=maybe"], "drop_last=maybe: it takes true or false", "drop_last=true"),
    (["data=points", "drop_last=true"], "drop_last=true:", "batch_size=5"),
    (["data=points", "data.samples=1"], "data.samples=1:", "data.samples=1000"),
    (
        ["data.val_size=1437"],
        "data=digits: data.val_size=1437 and data.test_size=360 exceed its 1797",
        "smaller",
    ),
    (["data.val_size=-1"], "data.val_size=-1:", "data.val_size=0"),
    (["data=mnist", "data.val_size=60000"], "data.val_size=60000 exceed its 60000 samples", "smaller"),
    (["scheduler=warmup_linear", "max_epochs=1"], "scheduler.warmup_steps=100: the run has 20 steps", "=2."),
    (["data=mnist", "data.samples=0"], "data.samples=0: it must be 1 or more", "=1"),
    (["data=mnist", "data.samples=55001"], "data.samples=55001 and data.val_size=5000 exceed its 60000", "smaller"),
    (["data=mnist", "data.mean=nan"], "data.mean=nan: it takes a finite number", "data.mean=0.1"),
    (["data.test_size=1797"], "data.test_size=1797 exceed its 1797 samples, or leave none", "smaller"),
    (["name=../up"], "name=../up:", "name=train"),
    (["name=''"], "name=:", "name=train"),
    (["+run_dir=here"], "run_dir=here: there is no such key", "--help"),
    (["~seed"], "seed is missing", "seed=VALUE"),
    (
        ["strategy.name=ddpx"],
        "strategy.name=ddpx: there is no such option",
        "write strategy.name=ddp, or another",
    ),
    (["strategy=dp", "num_nodes=2"], "num_nodes=2: strategy=dp is one process on one machine", "strategy=ddp"),
    (["strategy=dp", "sync_batchnorm=true"], "sync_batchnorm=true: each replica", "sync_batchnorm=false"),
    (["strategy=model_parallel"], "model=mlp: strategy=model_parallel needs a net with stages", "model=split_cnn"),
    (["strategy=model_parallel", "model=split_cnn", "devices=5"], "devices=5: model=split_cnn has 4", "devices=4"),
    (["strategy=model_parallel", "strategy.micro_batches=0"], "strategy.micro_batches=0:", "strategy.micro_batches=1"),
    (["engine=raw", "engine.gradient_sync=rng"], "engine.gradient_sync=rng:", "engine.gradient_sync=ring"),
    (["strategy=ddp", "strategy.share_device=2"], "strategy.share_device=2:", "strategy.share_device=true"),
    (["process_group.backend=mpi"], "process_group.backend=mpi: this torch was built without it", "with MPI"),
    (["process_group.backend=gluu"], "process_group.backend=gluu:", "process_group.backend=gloo"),
    (["process_group.timeout=0"], "process_group.timeout=0.0:", "process_group.timeout=60"),
    (["optimizer.lr=" + "9" * 400], "99999: it takes a finite number below 1e300", "optimizer.lr=0.1"),
    (["name=" + "n" * 5000], "nnnnn: a folder's name has at most 255 bytes", "name=train"),
    (["+min_steps=5"], "min_steps=5: there is no such key", "--help"),
    (["name='a/" + "ü" * 200 + "'"], "a folder's name has at most 255 bytes", "name=train"),
    (["optimizer.name=[[1]]"], "optimizer.name=[[1]]: there is no such option", "one of sgd"),
    (["+process_group.size=2"], "process_group.size=2: there is no such key", "--help lists"),
    (["process_group=gloo"], "process_group=gloo", "process_group.backend"),
    (["train=false", "test=false"], "test=false:", "train=true or test=true"),
    (["train=false"], "ckpt_path=null:", "best.ckpt"),
    (["ckpt_path=nowhere.ckpt"], "nowhere.ckpt: there is no such file", "null"),
    (["optimized_metric=val/accuracy"], "optimized_metric=val/accuracy:", "val/acc"),
    (
        ["optimized_metric=val/acc", "data=points"],
        "optimized_metric=val/acc:",
        "train/loss, train/acc, test/loss, test/acc",
    ),
    (["checkpoint.monitor=val/f2"], "checkpoint.monitor=val/f2: no epoch of this run", "val/acc, val/f1"),
    (["checkpoint.monitor=val/f1", "data.val_size=0"], "checkpoint.monitor=val/f1:", "train/loss, train/acc"),
    (["checkpoint.monitor=test/acc"], "checkpoint.monitor=test/acc:", "val/acc"),
    (["checkpoint=val/f1"], "checkpoint=val/f1: it is a group", "checkpoint.monitor=val/f1"),
    (["data=random_regression", "data.outputs=0"], "data.outputs=0:", "data.outputs=1"),
    (["data=line", "data.inputs=3"], "data.inputs=3: it is a list", "[128,64]"),
    (["data=line", "data.predict=[a]"], "data.predict=a: it takes a number", "data.predict=0.1"),
    (["strategy=model_parallel", "model=split_cnn", "show_shapes=true"], "show_shapes=true: stages", "strategy=dp"),
    (["name=null"], "name=null: it takes text", "name=a"),
    (["+zzzz=1"], "zzzz=1: there is no such key", "--help"),
    (["+model.hiden=[3]"], "model.hiden=[3]: there is no such key", "model.hidden=[3]"),
]


@pytest.mark.parametrize(("overrides", "start", "hint"), REFUSED, ids=[" ".join(case[0])[:60] for case in REFUSED])
def test_refused(make_plan: MakePlan, overrides: list[str], start: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_plan("accelerator=cpu", *overrides) if "accelerator=tpu" not in overrides else make_plan(*overrides)
    sentence = str(raised.value)
    assert start in sentence
    assert hint in sentence.split(";", 1)[1]
    assert "\n" not in sentence


def test_the_defaults_make_a_plan(make_plan: MakePlan) -> None:
    plan = make_plan()
    assert (plan.strategy.name, plan.model.name, plan.data.name, plan.world_size) == ("single", "mlp", "digits", 1)


def test_a_plan_is_frozen_and_travels(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp", "devices=2")
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


def test_the_global_batch_size(make_plan: MakePlan) -> None:
    assert make_plan("strategy=ddp", "devices=4").batch_size == 64
    assert make_plan("strategy=ddp", "devices=4", "batch_size_per_device=32").batch_size == 128


def test_the_learning_rate_scales_when_asked(make_plan: MakePlan) -> None:
    assert make_plan("strategy=ddp", "devices=4", "optimizer.lr=0.1").optimizer.lr == 0.1
    assert make_plan("strategy=ddp", "devices=4", "optimizer.lr=0.1", "scale_lr=true").optimizer.lr == 0.4


def test_gpu_tensors_do_not_go_round_a_ring_of_gloo(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp", "devices=2", "strategy.share_device=true", "engine=raw")
    shared = dataclasses.replace(plan, accelerator="gpu")
    with pytest.raises(
        ConfigError, match=r"engine.gradient_sync=ring: gloo cannot .*write engine.gradient_sync=bucket"
    ):
        dataclasses.replace(shared, engine=Raw("raw", "ring"))
    dataclasses.replace(plan, engine=Raw("raw", "ring"))


def test_devices_that_do_not_share_a_batch_scale_nothing(make_plan: MakePlan) -> None:
    """Replicas share the batch, stages do not; ranks there are in ddp alone."""
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


def test_integral_floats_are_ints(make_plan: MakePlan) -> None:
    assert make_plan("data=points", "data.samples=1e3").data.train_samples == 1000


def test_summaries_have_the_same_keys(make_plan: MakePlan) -> None:
    plans = [make_plan(), make_plan("data=line", "model=linear", "optimizer=sgd", "logger=none")]
    assert plans[0].summary().keys() == plans[1].summary().keys()
