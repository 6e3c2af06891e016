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
        ([f"ckpt_path={other}"], f"ckpt_path={other}: {foreign}"),
        ([f"ckpt_path={last}", "max_epochs=1"], "steps already; write max_epochs=2"),
        (
            [f"ckpt_path={last}", "seed=1", "batch_size=32"],
            "had seed=42 batch_size=64, and what is",
        ),
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
    with pytest.raises(
        ConfigError, match=r"^max_epochs=1: .* it has trained to epoch 1, for .* already; write max_epochs=2"
    ):
        check_checkpoint(resumed)
    assert check_checkpoint(resumed, keep_finished=True)
    assert not check_checkpoint(replace(resumed, max_epochs=2))


def test_another_net_is_refused(make_plan: MakePlan, tmp_path: Path) -> None:
    trained(make_plan)
    path = f"ckpt_path={tmp_path / 'checkpoints' / 'last.ckpt'}"
    with pytest.raises(ConfigError, match=r"it holds another net than model=.*; write the model and its opt"):
        run(make_plan("logger=none", "accelerator=cpu", "train=false", path, "model.net.hidden=[7]"), ALONE)


@pytest.mark.parametrize(
    ("first", "then", "refused"),
    [
        (["model.net.dropout=0.5"], ["strategy=ddp", "devices=2"], "strategy=ddp devices=2: the run of"),
        (["model.net.dropout=0"], ["strategy=ddp", "devices=2"], None),
        (["model=cnn", "sync_batchnorm=true"], ["strategy=ddp", "devices=2"], None),
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


def test_options_that_may_change(make_plan: MakePlan, mnist: str, tmp_path: Path) -> None:
    """The data may have moved."""
    words = ("strategy=ddp", "devices=2", "max_epochs=3", "threads=1", "logger=none", "name=other", "detect_nan=false")
    require_same(make_plan(*words, "checkpoint.every_n_steps=7"), identity(make_plan(), False))
    (tmp_path / "elsewhere").symlink_to(mnist)
    here, there = ("data=mnist", f"data.root={mnist}"), ("data=mnist", f"data.root={tmp_path / 'elsewhere'}")
    require_same(make_plan(*there), identity(make_plan(*here), False))
    with pytest.raises(ConfigError, match=r"^data.val_size=0: the run of .* had data.val_size=5000, and"):  # alone
        require_same(make_plan(*here, "data.val_size=0"), identity(make_plan(*here), False))


@pytest.mark.parametrize(
    "override",
    [
        *("optimizer.weight_decay=0.1", "loss_reduction=sum", "accumulate_grad_batches=2", "scheduler=onecycle"),
    ],
)
def test_options_of_another_training_are_refused(override: str, make_plan: MakePlan) -> None:
    key = override.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"^{key}.* had .*{key}.*; write ckpt_path=null"):
        require_same(make_plan(override), identity(make_plan(), False))
