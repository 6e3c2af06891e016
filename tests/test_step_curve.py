"""Curves of LightningModules over optimizer steps: the loss over ranks and samples since the last point, the rate."""

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.comparing import lines
from tests.conftest import MakeUserPlan
from tests.test_user_module import DDP, MODULES, SINGLE, by_both, trained

EVERY = ("logger=csv", "log_every_n_steps=2", "precision=64-true")
MEAN, RATE, SPEED = "train/loss_step", "lr", "samples_per_second"


def points(folder: Path, name: str) -> dict[int, float]:
    """Return the values of a curve by step."""
    rows: list[Any] = []
    for file in sorted(folder.glob("csv/**/metrics.csv")):
        with file.open() as opened:
            rows += [row for row in csv.DictReader(opened) if row.get(name)]
    return {int(row["step"]): float(row[name]) for row in rows}


def test_a_point_is_the_mean_since_the_last(make_user_plan: MakeUserPlan) -> None:
    """Four steps an epoch: a point after 3; that after 6 has the two steps of its epoch."""
    for run in by_both(make_user_plan(*MODULES["stream"], *EVERY, "log_every_n_steps=3", *DDP)):
        steps = lines(run, "step")
        assert [step["samples"] for step in steps] == [8, 8, 8, 6] * 2
        since = {3: steps[:3], 6: steps[4:6]}
        means = {
            at: sum(step["loss_sum"] for step in part) / sum(step["samples"] for step in part)
            for at, part in since.items()
        }
        assert points(run, MEAN) == pytest.approx(means, rel=1e-12)
        assert points(run, RATE) == dict.fromkeys(since, 0.01)
        assert points(run, SPEED).keys() == since.keys()


def test_a_name_that_the_module_logs_stays_its_own(make_user_plan: MakeUserPlan) -> None:
    """Rank 0's last loss on the step, as Lightning logs it, and not the mean of two."""
    run = trained(make_user_plan(*MODULES["stream"], *EVERY, "model._target_=strange_steps.LogsLoss", *SINGLE))
    logged = {number: step["logged"][MEAN] for number, step in enumerate(lines(run, "step"), start=1)}
    assert points(run, MEAN) == pytest.approx({at: logged[at] for at in (2, 4, 6, 8)}, rel=1e-12)
