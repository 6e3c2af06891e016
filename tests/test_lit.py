"""The Lightning engine in this process: one step worked out by hand, exact evaluation, curves, checkpoints."""

import shutil
import signal
from pathlib import Path

import pytest
import torch
from torch import nn

from lockstep import data
from lockstep.data.tensors import Split, TensorData
from lockstep.launch.topology import RankContext
from lockstep.lit import run
from lockstep.random_state import seed_rank
from lockstep.record.digest import digest
from lockstep.session import task
from lockstep.session.create_model import create_net
from tests.conftest import MakePlan, events_of

ALONE = RankContext(rank=0, world_size=1, local_rank=0, local_world_size=1)
pytestmark = [
    pytest.mark.usefixtures("process_as_it_was"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]


def integers() -> TensorData:
    """Four samples (x, y): (1, 2) (2, 3) (3, 7) (4, 9)."""
    split = Split(torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([[2.0], [3.0], [7.0], [9.0]]))
    return TensorData(split, split, split, outputs=1)


def test_one_step_by_hand(make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """y = wx + b from w = 1, b = 0, mean squared error, lr ⅛.

    errors wx + b - y:          -1 -1 -4 -5
    dL/dw = 2/4 · Σ error · x = ½ · (-1 - 2 - 12 - 20) = -17.5      w ← 1 + 17.5/8 = 3.1875
    dL/db = 2/4 · Σ error     = ½ · (-11)              = -5.5       b ← 5.5/8      = 0.6875
    loss  = (1 + 1 + 16 + 25) / 4 = 10.75
    """
    plan = make_plan(
        *("model=linear", "data=line", "data.samples=4", "data.val_size=4", "batch_size=4", "max_epochs=1"),
        *("optimizer=sgd", "optimizer.lr=0.125", "logger=none", "accelerator=cpu", "test=false"),
    )
    net = create_net(plan, integers())
    with torch.no_grad():
        for parameter, start in zip(net.parameters(), (1.0, 0.0), strict=True):
            parameter.fill_(start)
    monkeypatch.setattr(data, "load_splits", lambda *_: integers())
    monkeypatch.setattr(task, "create_net", lambda *_: net)
    run(plan, ALONE)
    assert [parameter.item() for parameter in net.parameters()] == [3.1875, 0.6875]


def test_what_a_run_returns_is_what_its_checkpoint_holds(make_plan: MakePlan) -> None:
    plan = make_plan("max_epochs=2", "accelerator=cpu", "data.val_size=179")  # odd: a ragged evaluation batch
    metrics = run(plan, ALONE)
    checkpoints = Path(plan.run_dir) / "checkpoints"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["best.ckpt", "last.ckpt", "previous.ckpt"]
    last = torch.load(checkpoints / "last.ckpt", weights_only=True)["state_dict"]
    assert metrics["digest"] == digest(last)
    tensors = data.load(plan.data)
    net = create_net(plan, tensors)
    net.load_state_dict({key.removeprefix("net."): value for key, value in last.items()})
    for stage, split in (("val", tensors.val), ("test", tensors.test)):
        inputs, targets = tensors.as_float(split[torch.arange(len(split))], torch.float32)
        with torch.no_grad():
            outputs = net(inputs)
        assert metrics[f"{stage}/acc"] == (outputs.argmax(1) == targets).double().mean().item()
        loss = nn.functional.cross_entropy(outputs, targets).item()
        assert metrics[f"{stage}/loss"] == pytest.approx(loss, rel=1e-5)
    assert (metrics["epochs"], metrics["steps"]) == (2, 40)


def test_lightning_leaves_the_signals_alone(make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own handler of SIGTERM would end training without a checkpoint, and talk to peers that may be gone."""
    taken: list[int] = []
    monkeypatch.setattr(signal, "signal", lambda number, _: taken.append(number))
    run(make_plan("max_epochs=1", "logger=none", "accelerator=cpu"), ALONE)
    assert taken == []


def test_the_best_checkpoint_is_of_the_best_epoch(make_plan: MakePlan) -> None:
    """A rate that is far too high makes later epochs worse."""
    plan = make_plan("max_epochs=4", "optimizer=sgd", "optimizer.lr=3", "logger=none", "accelerator=cpu", "seed=1")
    metrics = run(plan, ALONE)
    best = torch.load(Path(plan.run_dir) / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["epoch"] < 3
    last = torch.load(Path(plan.run_dir) / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["epoch"] == 3
    assert digest(last["state_dict"]) == metrics["digest"]
    assert best["lockstep"]["results"]["val/acc"] > metrics["val/acc"]
    assert best["lockstep"]["results"]["val/acc"] == pytest.approx(-best["lockstep"]["best"][1])


def test_curves_and_hyperparameters_are_in_tensorboard(make_plan: MakePlan) -> None:
    plan = make_plan("max_epochs=2", "log_every_n_steps=5", "scheduler=onecycle", "accelerator=cpu")
    metrics = run(plan, ALONE)
    events = events_of(Path(plan.run_dir))
    steps = {tag: [event.step for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    for tag in ("train/loss", "train/lr", "work/samples_per_second"):
        assert steps[tag] == [5, 10, 15, 20, 25, 30, 35, 40]
    assert len(steps["val/acc"]) == len(steps["val/loss"]) == 2
    assert events.Scalars("test/acc")[0].value == pytest.approx(metrics["test/acc"])
    assert events.Scalars("val/acc")[-1].value == pytest.approx(metrics["val/acc"])
    assert {tag.partition("/")[0] for tag in steps} == {"train", "val", "test", "work"}
    rates = [event.value for event in events.Scalars("train/lr")]
    assert max(rates) > 2 * rates[-1], "the schedule shows"
    hparams = b"".join(path.read_bytes() for path in (Path(plan.run_dir) / "tensorboard").glob("*/events*"))
    assert b"_hparams_/session_start_info" in hparams
    assert b"optimizer.lr" in hparams


def test_the_curve_of_the_loss_is_the_mean_since_the_last_point(make_plan: MakePlan) -> None:
    plan = make_plan("max_epochs=1", "log_every_n_steps=20", "optimizer.lr=1e-12", "accelerator=cpu", "test=false")
    metrics = run(plan, ALONE)
    events = events_of(Path(plan.run_dir))
    [point] = events.Scalars("train/loss")  # one point, over the whole epoch, ragged batch included
    assert point.value == pytest.approx(metrics["train/loss"], rel=1e-6)


def test_csv_and_no_logger(make_plan: MakePlan) -> None:
    plan = make_plan("max_epochs=1", "logger=csv", "accelerator=cpu")
    run(plan, ALONE)
    header = (Path(plan.run_dir) / "csv" / "metrics.csv").read_text().splitlines()[0]
    assert {"train/loss", "val/acc", "lr"} <= set(header.split(","))
    assert not (Path(plan.run_dir) / "tensorboard").exists()


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
def test_precisions_compute_what_they_say(make_plan: MakePlan, precision: str) -> None:
    plan = make_plan("max_epochs=2", f"precision={precision}", "logger=none", "accelerator=cpu")
    metrics = run(plan, ALONE)
    assert metrics["val/acc"] > 0.7  # type: ignore[operator]
    state = torch.load(Path(plan.run_dir) / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert {value.dtype for value in state.values()} == {torch.float64 if precision == "64-true" else torch.float32}


def test_weights_are_equal_on_all_ranks_and_dropout_is_not(make_plan: MakePlan) -> None:
    plan = make_plan("model=lenet", "accelerator=cpu")
    tensors = data.load(plan.data)
    nets, masks = [], []
    for rank in (0, 1):
        torch.rand(rank)  # whatever was drawn before
        nets.append(digest(create_net(plan, tensors).state_dict()))
        seed_rank(plan.seed, rank)
        masks.append(nn.functional.dropout(torch.ones(100)).tolist())
    assert nets[0] == nets[1]
    assert masks[0] != masks[1]


def test_resuming_goes_on_where_the_checkpoint_was(make_plan: MakePlan, tmp_path: Path) -> None:
    """Two epochs and two more are bit for bit four: the order of epoch 3 is that of epoch 3."""
    common = ("logger=none", "accelerator=cpu", "optimizer=sgd", "optimizer.momentum=0.9", "test=false")
    whole = run(make_plan("max_epochs=4", *common), ALONE)
    run(make_plan("max_epochs=2", *common), ALONE)
    half = Path(shutil.copy(tmp_path / "checkpoints" / "last.ckpt", tmp_path / "half.ckpt"))
    resumed = run(make_plan("max_epochs=4", f"ckpt_path={half}", *common), ALONE)
    assert resumed["digest"] == whole["digest"]
    assert resumed["steps"] == whole["steps"] == 80


@pytest.mark.parametrize("scheduler", ["onecycle", "warmup_linear"])
def test_schedules_can_be_resumed_for_longer(make_plan: MakePlan, tmp_path: Path, scheduler: str) -> None:
    common = (f"scheduler={scheduler}", "accelerator=cpu", "logger=csv", "test=false")
    warm = "scheduler.warmup_steps=10" if scheduler == "warmup_linear" else "scheduler.warmup_fraction=0.5"
    first = run(make_plan("max_epochs=2", warm, *common), ALONE)
    half = tmp_path / "checkpoints" / "last.ckpt"
    resumed = run(make_plan("max_epochs=4", warm, f"ckpt_path={half}", *common), ALONE)
    assert (first["steps"], resumed["steps"]) == (40, 80)
    speed = 2 * 1257 / resumed["train_seconds"]  # type: ignore[operator]
    assert resumed["samples_per_second"] == pytest.approx(speed), "two epochs were trained in this run"


def test_a_checkpoint_is_tested_alone(make_plan: MakePlan, tmp_path: Path) -> None:
    trained = run(make_plan("max_epochs=2", "logger=none", "accelerator=cpu"), ALONE)
    path = tmp_path / "checkpoints" / "last.ckpt"
    tested = run(make_plan("train=false", f"ckpt_path={path}", "logger=none", "accelerator=cpu", "seed=9"), ALONE)
    untrained = run(make_plan("max_epochs=1", "optimizer.lr=1e-12", "logger=none", "accelerator=cpu"), ALONE)
    assert tested["test/acc"] == trained["test/acc"] != untrained["test/acc"]
    assert tested["digest"] == trained["digest"]
    assert "train/loss" not in tested
