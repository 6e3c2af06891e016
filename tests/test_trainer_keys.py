"""Arguments of Lightning's Trainer (trainer.*) mean the same in both loops."""

import csv
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.plan.plan import Plan
from lockstep.runs.record import StepRecorder
from tests.comparing import lines, require_identical
from tests.conftest import MakePlan
from tests.rank_helpers import ALONE, by_loops, on_ranks
from tests.rank_helpers import ENGINES as RUN

SMALL = ("data=digits", "model.net.hidden=[8]", "batch_size=60", "threads=1", "accelerator=cpu", "logger=none")
DDP = ("strategy=ddp", "devices=2")


def by_both(plan: Plan, folder: Path) -> Path:
    """Run both loops, check that they agree, and return the folder of Lightning's own."""
    on_ranks(replace(plan, run_dir=str(folder)), by_loops)
    require_identical(folder / "fast", folder / "own")
    return folder / "own"


def validations(folder: Path) -> list[Any]:
    """Return the lines of validations; an epoch without one has a line of what training has logged."""
    return [line for line in lines(folder, "validation") if "val/loss" in line]


@pytest.mark.slow
def test_limits_end_an_epoch_early(make_plan: MakePlan, tmp_path: Path) -> None:
    """Bit for bit the first steps of an unlimited epoch, on two ranks, three batches a step."""
    job = (*DDP, "accumulate_grad_batches=3", "max_epochs=2", "test=false", "precision=64-true")
    unlimited = by_both(make_plan(*SMALL, *job), tmp_path / "unlimited")
    few = ("trainer.limit_train_batches=7", "trainer.limit_val_batches=2")
    limited = by_both(make_plan(*SMALL, *job, *few), tmp_path / "limited")
    steps = lines(limited, "step")
    assert steps[:2] == lines(unlimited, "step")[:2]
    assert [step["samples"] for step in steps] == [180, 180, 60] * 2
    assert steps[2]["ids"] != lines(unlimited, "step")[2]["ids"]
    shares = [line["val/acc"] * 120 for line in validations(limited)]
    assert shares == pytest.approx([round(share) for share in shares], abs=1e-9), "of 2 batches of 60"


@pytest.mark.slow
def test_a_fast_run_does_each_stage_once(make_plan: MakePlan, tmp_path: Path) -> None:
    plan = make_plan(*SMALL, *DDP, "trainer.fast_dev_run=2", "logger=csv", "max_epochs=5")
    folder = by_both(plan, tmp_path / "fast")
    assert [step["samples"] for step in lines(folder, "step")] == [60, 60]
    assert len(validations(folder)) == 1
    assert not (folder / "csv").exists()
    with (folder / "confusion.csv").open() as file:
        assert sum(int(count) for row in list(csv.reader(file))[1:] for count in row[1:]) == 120


WITHIN = ("trainer.limit_train_batches=7", "accumulate_grad_batches=2", "max_epochs=2", "precision=64-true")


def places(folder: Path) -> list[tuple[int, int | None, int | None]]:
    records = validations(folder)
    return [(line["epoch"], line.get("after_batch"), line.get("after_step")) for line in records]


@pytest.mark.slow
def test_validation_within_an_epoch(make_plan: MakePlan, tmp_path: Path) -> None:
    """After batches 3, within an accumulated step, and 6 of 7: the steps are those of a run that has none of them."""
    job = (*SMALL, *DDP, *WITHIN, "optimizer.lr=0.01", "test=false")
    usual = by_both(make_plan(*job), tmp_path / "usual")
    folder = by_both(make_plan(*job, "trainer.val_check_interval=0.5"), tmp_path / "within")
    assert places(usual) == [(1, None, None), (2, None, None)]
    assert places(folder) == [(1, 3, 1), (1, 6, 3), (2, 3, 5), (2, 6, 7)]
    assert lines(folder, "step") == lines(usual, "step")
    assert lines(folder, "tensor") == lines(usual, "tensor")
    scores = [line["val/acc"] for line in validations(folder)]
    best = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["lockstep"]["position"]
    assert (best["epochs"], best["batch"]) == [(0, 3), (0, 6), (1, 3), (1, 6)][scores.index(max(scores))]


NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"


def test_torch_flags_hold_during_training(make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NVML, "1")  # as Lightning does when it is imported
    seen: list[Any] = []
    stepped = StepRecorder.stepped

    def seeing(self: StepRecorder, optimizers: Any, last: bool) -> None:
        seen.append((*flags(), torch.is_anomaly_enabled()))
        assert NVML not in os.environ, "each step of Adam would load a driver"
        stepped(self, optimizers, last)

    monkeypatch.setattr(StepRecorder, "stepped", seeing)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    wanted = ("trainer.deterministic=warn", "trainer.detect_anomaly=true")
    before = flags()
    RUN["lightning"](make_plan(*SMALL, "trainer.fast_dev_run=1", *wanted), ALONE)
    assert seen == [(True, True, False, True)]
    assert flags() == before


def flags() -> tuple[bool, ...]:
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.are_deterministic_algorithms_enabled(), warns, torch.backends.cudnn.benchmark
