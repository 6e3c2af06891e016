"""The best job of a sweep: by what its jobs measured, in the direction that is better, and how to run it again."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from lockstep.sweep.best import Target, best_text, target_of
from lockstep.sweep.jobs import SweepJob

MONITORED = {"monitor": "val/acc", "mode": "max"}


def job(folder: Path, number: int, optimized: str | None = None, **results: Any) -> SweepJob:
    own = folder / str(number)
    own.mkdir()
    if results:
        (own / "metrics.json").write_text(json.dumps(results))
    words = {"words": [f"optimizer.lr={number}", "model.hidden=[8]"], "swept": ["optimizer.lr"]}
    OmegaConf.save({"optimized_metric": optimized, "command": words}, own / "config.yaml")
    return SweepJob(own, folder)


def test_it_is_the_first_of_the_best_of_what_the_checkpoint_is_best_by(tmp_path: Path) -> None:
    values = [0.5, 0.75, math.nan, 0.75]
    jobs = [job(tmp_path, number, best=value, **MONITORED) for number, value in enumerate(values)]
    unfinished = job(tmp_path, 9)
    target = target_of([*jobs, unfinished])
    assert target == Target("val/acc", "max", optimized=False)
    assert target.best([*jobs, unfinished]) is jobs[1]
    assert best_text(jobs, target) == [
        "best: job 1, best val/acc 0.75",
        "  python train.py optimizer.lr=1 'model.hidden=[8]'",
    ]


@pytest.mark.parametrize(
    ("name", "direction", "best"),
    [
        ("val/acc", None, 1),
        ("test/f1", None, 1),
        ("samples_per_second", None, 1),
        ("test/loss", None, 0),
        ("val_error", None, 0),
        ("val_error", "maximize", 1),
        ("val/acc", "minimize", 0),
    ],
)
def test_an_optimized_metric_has_its_direction(tmp_path: Path, name: str, direction: str | None, best: int) -> None:
    jobs = [job(tmp_path, number, name, **{name: float(number)}, best=1.0, **MONITORED) for number in range(2)]
    target = target_of(jobs, direction)
    assert target is not None
    assert (target.label, target.best(jobs)) == (name, jobs[best])


def test_where_all_are_alike_or_nothing_is_common_none_is_the_best(tmp_path: Path) -> None:
    alike = [job(tmp_path, number, best=0.5, **MONITORED) for number in range(2)]
    assert best_text(alike, target_of(alike)) == []
    other = job(tmp_path, 3, best=0.1, monitor="train/loss", mode="min")
    assert target_of([*alike, other]) is None
    assert target_of([job(tmp_path, 4, digest="a")]) is None
