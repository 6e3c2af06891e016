"""Checkpoints that do not fit the plan are refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lockstep.parallel.global_dropout import convert_dropout
from lockstep.session.task import create_net

from lockstep import data
from lockstep.checkpoint.content import SECTION
from lockstep.checkpoint.identity import identity, require_same
from lockstep.checkpoint.reading import check_checkpoint
from lockstep.config_error import ConfigError
from lockstep.parallel.sync_batchnorm import convert_batchnorm
from lockstep.plan import Plan
from lockstep.record.recorder import depends_on_world
from lockstep.schemas.model import UserModel
from tests.conftest import IN_PROCESS, MakePlan, MakeUserPlan
from tests.rank_helpers import ALONE, ENGINES

pytestmark = IN_PROCESS


def trained(make_plan: MakePlan, *overrides: str) -> Plan:
    """A plan whose run of one epoch, on one rank of the raw engine, has left checkpoints."""
    plan = make_plan("max_epochs=1", "logger=none", "accelerator=cpu", "test=false", *overrides)
    ENGINES["raw"](plan, ALONE)
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


@pytest.mark.parametrize("engine", ENGINES)
def test_another_net_is_refused(engine: str, make_plan: MakePlan, tmp_path: Path) -> None:
    trained(make_plan)
    path = f"ckpt_path={tmp_path / 'checkpoints' / 'last.ckpt'}"
    for model in ("model.net.hidden=[7]", "model=cnn"):
        with pytest.raises(ConfigError, match=r"it holds another net than model=.*; write model=mlp model\.hidden=\["):
            ENGINES[engine](make_plan("logger=none", "accelerator=cpu", "train=false", path, model), ALONE)


def test_sums_of_other_metrics_are_refused(make_plan: MakePlan) -> None:
    """As after a metric has been added or removed."""
    saved = {**identity(make_plan(), False), "data.sums": ["loss", "samples", "acc", "top3"]}
    with pytest.raises(
        ConfigError, match=r"^data.sums=\[loss,samples,acc\]: .* had data.sums=\[loss,samples,acc,top3\]"
    ):
        require_same(make_plan(), saved)


@pytest.mark.parametrize(
    ("first", "then", "refused"),
    [
        (["model.dropout=0.5"], ["strategy=ddp", "devices=2"], "strategy=ddp devices=2: the run of"),
        (["model.dropout=0.5", "strategy=ddp"], ["strategy=ddp", "devices=2"], "devices=2: the run of"),
        (["model.dropout=0.5", "strategy=ddp"], ["strategy=ddp_spawn"], None),
        (["model.dropout=0.5", "dropout_rng=global"], ["strategy=ddp", "devices=2"], None),
        (["model.dropout=0"], ["strategy=ddp", "devices=2"], None),
        (["model=cnn"], ["strategy=ddp", "devices=2"], "strategy=ddp devices=2: the run of"),
        (["model=cnn", "sync_batchnorm=true"], ["strategy=ddp", "devices=2"], None),
        (["model=cnn", "model.norm=none"], ["strategy=ddp", "devices=2"], None),
    ],
)
def test_another_world_is_refused_if_ranks_draw_separate_numbers(
    first: list[str], then: list[str], refused: str | None, make_plan: MakePlan
) -> None:
    common = [override for override in first if not override.startswith("strategy=")]
    net = [] if any(override.startswith("model=") for override in first) else ["model=lenet"]
    before = make_plan(*net, *first)
    built = create_net(before, data.load(before.data))
    if before.sync_batchnorm:
        convert_batchnorm(built)
    if before.dropout_rng == "global":
        convert_dropout(before, 0, built)
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
        ["engine=raw"],
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
        *("model=linear", "data=points", "optimizer=adamw", "seed=1", "batch_size=32", "scheduler=onecycle"),
        *("accumulate_grad_batches=2", "drop_last=true", "precision=bf16-mixed", "gradient_clip_val=1.0"),
        *("sync_batchnorm=true", "dropout_rng=global"),
    ],
)
def test_options_of_another_training_are_refused(override: str, make_plan: MakePlan) -> None:
    key = override.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"^{override}\b.* had {key}=.*; write {key}="):
        require_same(make_plan(override), identity(make_plan(), False))


def test_data_may_have_moved(make_plan: MakePlan) -> None:
    require_same(make_plan("data=mnist", "data.root=/elsewhere"), identity(make_plan("data=mnist"), False))
    with pytest.raises(ConfigError, match=r"data.val_size=0: .* write data.val_size=5000"):
        require_same(make_plan("data=mnist", "data.val_size=0"), identity(make_plan("data=mnist"), False))


def test_code_that_is_no_option_is_resumed_in_its_folder(make_plan: MakePlan, make_user_plan: MakeUserPlan) -> None:
    """`model=Residual` could not be typed."""
    saved = identity(make_user_plan("model=residual", "data=noisy"), False)
    plan = replace(make_plan(), ckpt_path="/runs/one/checkpoints/last.ckpt")
    with pytest.raises(
        ConfigError, match=r"^model=mlp .* had model=Residual .*; write resume=true hydra.run.dir=/runs/one\.$"
    ):
        require_same(plan, saved)


def test_code_in_an_option_is_resumed_in_its_folder(make_plan: MakePlan) -> None:
    plan = replace(make_plan(), ckpt_path="/runs/one/checkpoints/last.ckpt")
    saved = identity(plan, False) | {"callbacks": [{"_target_": "mine.Callback", "names": ["long"] * 99}]}
    with pytest.raises(
        ConfigError, match=r"^no callbacks: .*mine.Callback.*; write resume=true hydra.run.dir=/runs/one\.$"
    ) as raised:
        require_same(plan, saved)
    assert len(str(raised.value)) < 500


def test_only_the_differing_entries_of_an_argument_are_named(make_plan: MakePlan) -> None:
    """An argument may be a target of its own, with many arguments."""
    before, now = ({"net": {"_target_": "mine.Net", "width": width, "depth": 2}} for width in (4, 8))
    plan = make_plan()
    saved = identity(
        replace(plan, model=UserModel(name="Net", _target_="mine.Around", arguments=before, key="model")), False
    )
    with pytest.raises(
        ConfigError, match=r"^model.net.width=8: .* had model.net.width=4, .*; write model.net.width=4\.$"
    ):
        require_same(
            replace(plan, model=UserModel(name="Net", _target_="mine.Around", arguments=now, key="model")), saved
        )
