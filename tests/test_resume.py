"""Exact resume: killed at any step and gone on with, a run is bit for bit the run that nobody killed."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep import launch
from lockstep.checkpoint.files import newest_whole
from lockstep.launch import RankFailed
from lockstep.plan import Plan
from lockstep.record import RECORD, Metrics
from tests.ranks import with_engine

MakePlan = Callable[..., Plan]

RAGGED = ("data=points", "data.samples=37", "batch_size=8", "model=mlp", "model.hidden=[5]", "logger=csv")
DROPS = ("data=digits", "model=lenet", "model.dropout=0.5", "batch_size=200", "logger=none")
MOMENTUM = ("optimizer=sgd", "optimizer.lr=0.05", "optimizer.momentum=0.9", "scheduler=onecycle", "max_epochs=2")
WORLDS = [("strategy=single", "devices=1"), ("strategy=ddp", "devices=2")]
SAME = (
    "digest",
    "train/loss",
    "train/acc",
    "val/loss",
    "val/acc",
    "val/f1",
    "test/loss",
    "test/acc",
    "epochs",
    "steps",
)


def start(plan: Plan, monkeypatch: pytest.MonkeyPatch, fault: str = "") -> Metrics:
    monkeypatch.setenv("FAULT", fault)
    metrics: Metrics = launch.start(plan, "tests.faults")
    return metrics


def resumed(plan: Plan) -> Plan:
    newest, damaged = newest_whole([Path(plan.run_dir)])
    assert not damaged
    return replace(plan, resume=True, ckpt_path=None if newest is None else str(newest))


def record(plan: Plan) -> str:
    return (Path(plan.run_dir) / RECORD).read_text()


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world[0].removeprefix("strategy="))
@pytest.mark.parametrize("engine", ["lightning", "raw"])
def test_killed_at_every_step_it_ends_the_same(
    engine: str, world: tuple[str, ...], make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Dropout, momentum, a schedule, a ragged last batch; a checkpoint after every third step and each epoch."""
    plan = make_plan(*DROPS, *MOMENTUM, *world, "checkpoint.every_n_steps=3", "accelerator=cpu")
    whole = with_engine(plan, engine, tmp_path / "whole")
    expected = start(whole, monkeypatch)
    assert expected["steps"] == 14
    for step in range(1, 15):
        broken = with_engine(plan, engine, tmp_path / f"killed-at-{step}")
        with pytest.raises(RankFailed, match="SIGKILL"):
            start(broken, monkeypatch, f"kill@{step % plan.world_size}:step:{step}")
        metrics = start(resumed(broken), monkeypatch)
        assert {key: metrics[key] for key in SAME} == {key: expected[key] for key in SAME}
        assert record(broken) == record(whole)
