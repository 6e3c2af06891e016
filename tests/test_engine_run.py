"""Runs of the Lightning engine: resumed for longer, under other strategies; the gradient of a weighted loss."""

from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.engine import run
from lockstep.plan.plan import Plan
from lockstep.runs.run_files import Metrics
from tests.conftest import IN_PROCESS, MakePlan
from tests.rank_helpers import ALONE, on_ranks, with_engine

pytestmark = IN_PROCESS
DIGITS = ("data.test_size=1655", "data.val_size=12", "batch_size=12", "threads=1", "accelerator=cpu")


def trained(plan: Plan, folder: str) -> Metrics:
    return run(with_engine(plan, "lightning", Path(plan.run_dir) / folder), ALONE)


@pytest.mark.slow
def test_schedules_can_be_resumed_for_longer(make_plan: MakePlan) -> None:
    schedule = ("scheduler=onecycle", "scheduler.warmup_fraction=0.5")
    plan = make_plan("max_epochs=2", "accelerator=cpu", "logger=csv", "test=false", *schedule)
    half = Path(plan.run_dir) / "half" / "checkpoints" / "last.ckpt"
    first = trained(plan, "half")
    resumed = trained(replace(plan, max_epochs=4, ckpt_path=str(half)), "resumed")
    assert (first["steps"], resumed["steps"]) == (40, 80)
    speed = 2 * 1257 / resumed["train_seconds"]  # type: ignore[operator]
    assert resumed["samples_per_second"] == pytest.approx(speed), "two epochs were trained in this run"


OTHER_STRATEGIES = [
    ("strategy=single", "devices=1"),
    ("strategy=dp", "devices=2"),
    ("strategy=model_parallel", "devices=2"),
]


@pytest.mark.slow
def test_checkpoints_load_under_any_other_strategy(make_plan: MakePlan) -> None:
    """Trained on two ranks, tested under each strategy."""
    split = ("model=split_cnn", *DIGITS, "logger=none", "max_epochs=1")
    plan = make_plan(*split, "strategy=ddp", "devices=2")
    by_ranks = with_engine(plan, "lightning", Path(plan.run_dir) / "ddp")
    metrics = on_ranks(by_ranks, run)
    last = Path(by_ranks.run_dir) / "checkpoints" / "last.ckpt"
    for world in OTHER_STRATEGIES:
        tested = trained(replace(make_plan(*split, *world), train=False, ckpt_path=str(last)), world[0])
        assert tested["digest"] == metrics["digest"]
        assert tested["test/acc"] == metrics["test/acc"]
        assert (tested["epochs"], tested["steps"]) == (0, 0), "this run trained nothing"
        assert tested["test/loss"] == pytest.approx(metrics["test/loss"], rel=1e-5)
