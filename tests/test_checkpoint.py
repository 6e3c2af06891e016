"""Checkpoints are read with care: what does not fit the plan is refused by either engine, and nothing in it runs."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep import data
from lockstep.checkpoint.content import SECTION, net_weights
from lockstep.checkpoint.identity import identity, require_same
from lockstep.checkpoint.reading import check_checkpoint
from lockstep.config_error import ConfigError
from lockstep.launch.topology import RankContext
from lockstep.parallel.global_dropout import convert_dropout
from lockstep.parallel.sync_batchnorm import convert_batchnorm
from lockstep.plan import Plan
from lockstep.record.run_metadata import depends_on_world
from lockstep.session.create_model import create_net
from tests.conftest import MakePlan
from tests.rank_helpers import ENGINES

ALONE = RankContext(rank=0, world_size=1, local_rank=0, local_world_size=1)
pytestmark = [
    pytest.mark.usefixtures("process_as_it_was"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]


def test_names_in_a_checkpoint_and_in_the_net() -> None:
    net = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    state = {f"net.{name}": tensor for name, tensor in net.state_dict().items()}
    assert net_weights({"state_dict": state}).keys() == net.state_dict().keys()


@pytest.mark.parametrize("engine", ENGINES)
def test_checkpoints_that_do_not_fit_are_refused(engine: str, make_plan: MakePlan, tmp_path: Path) -> None:
    ENGINES[engine](make_plan("max_epochs=2", "logger=none", "accelerator=cpu", "test=false"), ALONE)
    last, torn, other = tmp_path / "checkpoints" / "last.ckpt", tmp_path / "torn.ckpt", tmp_path / "other.ckpt"
    torn.write_bytes(last.read_bytes()[:1000])
    other.write_text("not a checkpoint")
    cases = [
        ([f"ckpt_path={torn}"], "torn.ckpt: it is no whole checkpoint file; write ckpt_path=last"),
        ([f"ckpt_path={other}", "train=false"], "other.ckpt: it is no whole checkpoint file"),
        ([f"ckpt_path={last}", "model.hidden=[7]", "train=false"], "it holds another net than model=mlp"),
        ([f"ckpt_path={last}", "model=cnn", "train=false"], "it holds another net than model=cnn"),
        ([f"ckpt_path={last}", "max_epochs=2"], "it has trained for 2 epochs already; write max_epochs=3"),
        ([f"ckpt_path={last}", "seed=43"], "seed=43: the run of ckpt_path="),
        ([f"ckpt_path={last}", "optimizer=adamw"], "write optimizer=adam."),
        ([f"ckpt_path={last}", "optimizer.lr=0.5"], "optimizer.lr=0.5: the run of"),
        ([f"ckpt_path={last}", "model.hidden=[7]"], "had model.hidden=[256,128], and what is trained would not be"),
        ([f"ckpt_path={last}", "seed=1", "batch_size=32"], "write seed=42 batch_size=64."),
        ([f"ckpt_path={last}", "data=points"], "data=points: the run of"),
    ]
    for overrides, sentence in cases:
        with pytest.raises(ConfigError) as raised:
            ENGINES[engine](make_plan("logger=none", "accelerator=cpu", *overrides), ALONE)
        assert sentence in str(raised.value)
        assert "\n" not in str(raised.value)


class Hostile:
    """Unpickled, it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_checkpoint_that_would_run_code_does_not(engine: str, make_plan: MakePlan, tmp_path: Path) -> None:
    hostile, mark = tmp_path / "hostile.ckpt", tmp_path / "it-ran"
    torch.save({"state_dict": {}, "epoch": 0, "optimizer_states": [], "extra": Hostile(mark)}, hostile)
    with pytest.raises(ConfigError, match="it is not a checkpoint that this project wrote"):
        ENGINES[engine](make_plan(f"ckpt_path={hostile}", "logger=none", "accelerator=cpu"), ALONE)
    assert not mark.exists()
    torch.load(hostile, weights_only=False)
    assert mark.exists(), "the file is as hostile as it looks"


def trained(make_plan: MakePlan, *overrides: str) -> Plan:
    """A plan whose run of one epoch, on one rank of the raw engine, has left checkpoints."""
    plan = make_plan("max_epochs=1", "logger=none", "accelerator=cpu", "test=false", *overrides)
    ENGINES["raw"](plan, ALONE)
    return plan


def test_every_flipped_bit_is_seen_or_does_no_harm(make_plan: MakePlan, tmp_path: Path) -> None:
    """A hundred copies, each with one bit wrong somewhere: either it is refused, or every number is right."""
    trained(make_plan, "model.hidden=[4]", "data=points", "max_epochs=1")
    whole = tmp_path / "checkpoints" / "last.ckpt"
    right, numbers = torch.load(whole, weights_only=True), whole.read_bytes()
    flipped, refused = Path(shutil.copy(whole, tmp_path / "flipped.ckpt")), 0
    plan = make_plan("max_epochs=2", "model.hidden=[4]", "data=points", f"ckpt_path={flipped}")
    for index in range(100):
        position = index * len(numbers) // 100
        wrong = bytearray(numbers)
        wrong[position] ^= 1 << index % 8
        flipped.write_bytes(wrong)
        try:
            check_checkpoint(plan)
        except ConfigError:
            refused += 1
        else:
            assert state_bytes(torch.load(flipped, weights_only=True)) == state_bytes(right)
    assert refused > 30, "most of a small file is what its parts say, not the gaps between them"


def state_bytes(checkpoint: Mapping[str, Any]) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in checkpoint["state_dict"].values()]


Edit = Callable[[dict[str, Any]], object]
EDITS: dict[str, Edit] = {
    "another program's": lambda checkpoint: checkpoint.pop(SECTION),
    "no weights": lambda checkpoint: checkpoint.update(state_dict=3),
    "weights of another kind": lambda checkpoint: checkpoint["state_dict"].update({"net.layers.0.weight": "x"}),
    "no optimizer": lambda checkpoint: checkpoint.update(optimizer_states=[]),
    "another optimizer": lambda checkpoint: checkpoint["optimizer_states"][0]["param_groups"][0].update(params=[0]),
    "no schedule": lambda checkpoint: checkpoint.update(lr_schedulers=[]),
    "no rank": lambda checkpoint: checkpoint[SECTION].update(ranks=[]),
    "another version's rank": lambda checkpoint: checkpoint[SECTION]["ranks"][0].update(unknown=1),
    "half a random state": lambda checkpoint: checkpoint[SECTION]["ranks"][0]["random"].pop("torch"),
    "no sums": lambda checkpoint: checkpoint[SECTION]["ranks"][0].update(sums={}),
    "no identity": lambda checkpoint: checkpoint[SECTION].update(identity=None),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_what_this_project_did_not_write_is_refused_by_either_engine(
    edit: Edit, make_plan: MakePlan, tmp_path: Path
) -> None:
    small = ("data=points", "model.hidden=[4]", "scheduler=onecycle")
    trained(make_plan, *small)
    checkpoint = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    path = f"ckpt_path={tmp_path / 'other.ckpt'}"
    edit(checkpoint)
    torch.save(checkpoint, tmp_path / "other.ckpt")
    for engine in ENGINES:
        with pytest.raises(ConfigError) as raised:
            ENGINES[engine](make_plan(*small, "max_epochs=2", "logger=none", "accelerator=cpu", path), ALONE)
        sentence = str(raised.value)
        assert sentence.startswith(f"{path}: it is not a checkpoint that this project wrote (")
        assert "; write ckpt_path=last, or " in sentence
        assert "\n" not in sentence


def test_sums_of_other_metrics_are_not_gone_on_from(make_plan: MakePlan, tmp_path: Path) -> None:
    """As after a metric has been added, or taken away."""
    trained(make_plan)
    checkpoint = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    for names, told in ((["loss", "samples", "acc", "top3"], "loss, samples, acc, top3"), (None, "none")):
        checkpoint[SECTION]["sum_names"] = names
        if names is None:  # as an older version left it
            del checkpoint[SECTION]["sum_names"]
        torch.save(checkpoint, tmp_path / "other.ckpt")
        reason = f"it holds sums of {told}, and this version measures loss, samples, acc; write ckpt_path="
        with pytest.raises(ConfigError, match=reason):
            check_checkpoint(make_plan("max_epochs=2", f"ckpt_path={tmp_path / 'other.ckpt'}"))
        check_checkpoint(make_plan("train=false", f"ckpt_path={tmp_path / 'other.ckpt'}"))


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
def test_another_world_only_where_no_rank_draws_by_itself(
    first: list[str], then: list[str], refused: str | None, make_plan: MakePlan
) -> None:
    """Dropout with masks of each rank's own ties a run to its world."""
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
def test_what_may_change_between_a_run_and_its_resumption(overrides: list[str], make_plan: MakePlan) -> None:
    require_same(make_plan(*overrides), identity(make_plan(), False))
    with pytest.raises(ConfigError, match="seed=1: the run of"):  # the control: with another seed it may not
        require_same(make_plan(*overrides, "seed=1"), identity(make_plan(), False))


@pytest.mark.parametrize(
    "override",
    [
        *("model=linear", "data=points", "optimizer=adamw", "seed=1", "batch_size=32", "scheduler=onecycle"),
        *("accumulate_grad_batches=2", "drop_last=true", "precision=bf16-mixed", "gradient_clip_val=1.0"),
        *("sync_batchnorm=true", "dropout_rng=global"),
    ],
)
def test_each_of_these_is_another_training(override: str, make_plan: MakePlan) -> None:
    key = override.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"^{override}\b.* had {key}=.*; write {key}="):
        require_same(make_plan(override), identity(make_plan(), False))


def test_data_may_have_moved(make_plan: MakePlan) -> None:
    require_same(make_plan("data=mnist", "data.root=/elsewhere"), identity(make_plan("data=mnist"), False))
    with pytest.raises(ConfigError, match=r"data.val_size=0: .* write data.val_size=5000"):
        require_same(make_plan("data=mnist", "data.val_size=0"), identity(make_plan("data=mnist"), False))
