"""Checkpoints that do not fit the plan are refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lockstep.base.config_error import ConfigError
from lockstep.engine import run
from lockstep.engine.loaders.source import create_module
from lockstep.plan.plan import Plan
from lockstep.runs.checkpoint.content import SECTION
from lockstep.runs.checkpoint.reading import check_checkpoint, identity, require_same
from lockstep.runs.record import depends_on_world
from lockstep.strategies.parallel.sync_batchnorm import convert_batchnorm
from tests.conftest import IN_PROCESS, MakePlan
from tests.rank_helpers import ALONE

pytestmark = IN_PROCESS


def trained(make_plan: MakePlan, *overrides: str) -> Plan:
    """A plan whose run of one epoch, on one rank, has left checkpoints."""
    plan = make_plan("max_epochs=1", "logger=none", "accelerator=cpu", "test=false", *overrides)
    run(plan, ALONE)
    return plan


def test_checkpoints_that_do_not_fit_are_refused(make_plan: MakePlan, tmp_path: Path) -> None:
    trained(make_plan)
    last, torn, other = (tmp_path / "checkpoints" / f"{name}.ckpt" for name in ("last", "torn", "other"))
    torn.write_bytes(last.read_bytes()[:1000])
    checkpoint = torch.load(last, weights_only=True)
    del checkpoint[SECTION]
    torch.save(checkpoint, other)
    incomplete = "it is no complete checkpoint of this project (BadZipFile); write ckpt_path=last"
    foreign = "it is not a checkpoint that this project wrote; write ckpt_path=last, or "
    cases = [
        ([f"ckpt_path={torn}"], f"ckpt_path={torn}: {incomplete}"),
        ([f"ckpt_path={torn}", "train=false"], f"ckpt_path={torn}: {incomplete}"),
        ([f"ckpt_path={other}"], f"ckpt_path={other}: {foreign}"),
        ([f"ckpt_path={last}", "max_epochs=1"], "it has trained for 1 epochs already; write max_epochs=2"),
        (
            [f"ckpt_path={last}", "model.net.hidden=[7]"],
            "had model.net.hidden=[256,128], and what is trained would not be",
        ),
        ([f"ckpt_path={last}", "optimizer.lr=0.1"], "had optimizer.lr=0.001, and what is trained would not be"),
        ([f"ckpt_path={last}", "seed=1", "batch_size=32"], "write seed=42 batch_size=64."),
    ]
    for overrides, message in cases:
        with pytest.raises(ConfigError) as raised:
            check_checkpoint(make_plan("logger=none", "accelerator=cpu", *overrides))
        assert message in str(raised.value)
        assert "\n" not in str(raised.value)


def test_finished_run_is_refused(make_plan: MakePlan, tmp_path: Path) -> None:
    """A run is finished when it has metrics.json; until then it is still to be tested."""
    last = str(tmp_path / "checkpoints" / "last.ckpt")
    resumed = replace(trained(make_plan), resume=True, ckpt_path=last)
    assert not check_checkpoint(resumed)
    (tmp_path / "metrics.json").touch()
    with pytest.raises(ConfigError, match=r"^max_epochs=1: .* it has trained for 1 epochs already; write max_epochs=2"):
        check_checkpoint(resumed)
    assert check_checkpoint(resumed, keep_finished=True)
    assert not check_checkpoint(replace(resumed, max_epochs=2))


def test_another_net_is_refused(make_plan: MakePlan, tmp_path: Path) -> None:
    trained(make_plan)
    path = f"ckpt_path={tmp_path / 'checkpoints' / 'last.ckpt'}"
    for model in ("model.net.hidden=[7]", "model=cnn"):
        with pytest.raises(ConfigError, match=r"it holds another net than model=.*; write the model and its opt"):
            run(make_plan("logger=none", "accelerator=cpu", "train=false", path, model), ALONE)


@pytest.mark.parametrize(
    ("first", "then", "refused"),
    [
        (["model.net.dropout=0.5"], ["strategy=ddp", "devices=2"], "strategy=ddp devices=2: the run of"),
        (["model.net.dropout=0.5", "strategy=ddp"], ["strategy=ddp", "devices=2"], "devices=2: the run of"),
        (["model.net.dropout=0.5", "strategy=ddp"], ["strategy=ddp_spawn"], None),
        (["model.net.dropout=0"], ["strategy=ddp", "devices=2"], None),
        (["model=cnn"], ["strategy=ddp", "devices=2"], "strategy=ddp devices=2: the run of"),
        (["model=cnn", "sync_batchnorm=true"], ["strategy=ddp", "devices=2"], None),
        (["model=cnn", "model.net.norm=none"], ["strategy=ddp", "devices=2"], None),
    ],
)
def test_another_world_is_refused_if_ranks_draw_separate_numbers(
    first: list[str], then: list[str], refused: str | None, make_plan: MakePlan
) -> None:
    common = [override for override in first if not override.startswith("strategy=")]
    net = [] if any(override.startswith("model=") for override in first) else ["model=lenet"]
    before = make_plan(*net, *first)
    built = create_module(before.model, before.seed)
    if before.sync_batchnorm:
        convert_batchnorm(built)
    saved = identity(before, depends_on_world(before, built))
    plan = make_plan(*net, *common, *then)
    if refused is None:
        require_same(plan, saved)
        return
    with pytest.raises(ConfigError) as raised:
        require_same(plan, saved)
    assert refused in str(raised.value)
    assert "its dropout or BatchNorm was each rank's own" in str(raised.value)


@pytest.mark.parametrize(
    "overrides",
    [
        ["strategy=ddp", "devices=2"],
        ["max_epochs=3"],
        ["threads=1", "logger=none", "name=other"],
        ["checkpoint.every_n_steps=7", "detect_nan=false"],
    ],
)
def test_options_that_may_change(overrides: list[str], make_plan: MakePlan) -> None:
    require_same(make_plan(*overrides), identity(make_plan(), False))
    with pytest.raises(ConfigError, match="seed=1: the run of"):
        require_same(make_plan(*overrides, "seed=1"), identity(make_plan(), False))


@pytest.mark.parametrize(
    "override",
    [
        *("seed=1", "batch_size=32", "optimizer.weight_decay=0.1", "loss_reduction=sum"),
        *("accumulate_grad_batches=2", "drop_last=true", "precision=bf16-mixed", "gradient_clip_val=1.0"),
        "sync_batchnorm=true",
    ],
)
def test_options_of_another_training_are_refused(override: str, make_plan: MakePlan) -> None:
    key = override.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"^{override}\b.* had {key}=.*; write {key}="):
        require_same(make_plan(override), identity(make_plan(), False))


@pytest.mark.parametrize("override", ["model=linear", "data=points", "optimizer=adamw_groups", "scheduler=onecycle"])
def test_another_option_of_a_group_is_resumed_in_its_folder(override: str, make_plan: MakePlan) -> None:
    saved, plan = identity(make_plan(), False), make_plan(override)
    with pytest.raises(ConfigError, match=r"_target_=.* and what is trained would not be the same; write resume=true"):
        require_same(replace(plan, ckpt_path="/runs/one/checkpoints/last.ckpt"), saved)


def test_data_may_have_moved(make_plan: MakePlan, mnist: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(mnist)
    here, there = ("data=mnist", f"data.root={mnist}"), ("data=mnist", f"data.root={tmp_path / 'elsewhere'}")
    require_same(make_plan(*there), identity(make_plan(*here), False))
    with pytest.raises(ConfigError, match=r"data.val_size=0: .* write data.val_size=5000"):
        require_same(make_plan(*here, "data.val_size=0"), identity(make_plan(*here), False))


def test_code_in_an_option_is_resumed_in_its_folder(make_plan: MakePlan) -> None:
    plan = replace(make_plan(), ckpt_path="/runs/one/checkpoints/last.ckpt")
    saved = identity(plan, False) | {"callbacks": [{"_target_": "mine.Callback", "names": ["long"] * 99}]}
    with pytest.raises(
        ConfigError, match=r"^no callbacks: .*mine.Callback.*; write resume=true hydra.run.dir=/runs/one\.$"
    ) as raised:
        require_same(plan, saved)
    assert len(str(raised.value)) < 500


def test_facts_that_follow_from_an_option_are_not_named(make_plan: MakePlan) -> None:
    saved, plan = identity(make_plan(), False), make_plan("data.val_size=100")
    with pytest.raises(
        ConfigError, match=r"^data.val_size=100: .* had data.val_size=180, .*; write data.val_size=180\.$"
    ):
        require_same(plan, saved)
