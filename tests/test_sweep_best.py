"""The best job of a sweep: by what its jobs measured, in the direction that is better, and how to run it again."""

import json
import math
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from lockstep.runs.run_files import save_config
from lockstep.runs.sweep.jobs import LAYOUT, RankingMetric, SweepJob, best_text, jobs_of, ranking_metric, rows_of

MONITORED = {"monitor": "val/acc", "mode": "max"}


def job(sweep: Path, number: int, optimized: str | None = None, **results: Any) -> SweepJob:
    folder = sweep / str(number)
    folder.mkdir()
    if results:
        (folder / "metrics.json").write_text(json.dumps(results))
    world = {"engine": {"name": "raw"}, "strategy": {"name": "single"}, "devices": 1, "num_nodes": 1}
    config = {**world, "optimizer": {"lr": float(number)}, "optimized_metric": optimized}
    words = (f"optimizer.lr={number}", "model.net.hidden=[8]")
    save_config(folder, OmegaConf.to_yaml(OmegaConf.create(config)), words, ("optimizer.lr",))
    return SweepJob(folder, sweep)


def test_the_first_of_the_best_by_the_monitor_of_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [0.5, 0.75, math.nan, 0.75]
    jobs = [job(tmp_path, number, best=value, **MONITORED) for number, value in enumerate(values)]
    unfinished = job(tmp_path, 9)
    metric = ranking_metric([*jobs, unfinished])
    assert metric == RankingMetric("best", "best val/acc", "max")
    assert metric.best([*jobs, unfinished]) is jobs[1]
    command = "  python train.py optimizer.lr=1 'model.net.hidden=[8]'"
    assert best_text(jobs, metric) == ["best: job 1, best val/acc 0.75", command]
    monkeypatch.chdir(tmp_path)  # which has no train.py
    assert best_text(jobs, metric)[1] == command.replace("python train.py", "lockstep")


def test_jobs_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 2, 0):
        job(tmp_path, number, best=0.5, **MONITORED)
    assert [each.name for each in jobs_of(tmp_path, since=0)] == ["0", "2", "10"]


@pytest.mark.parametrize(
    ("name", "best"), [("val/acc", 1), ("test/f1", 1), ("samples_per_second", 1), ("test/loss", 0), ("val_error", 0)]
)
def test_an_optimized_metric_has_its_direction(tmp_path: Path, name: str, best: int) -> None:
    jobs = [job(tmp_path, number, name, **{name: float(number)}, best=1.0, **MONITORED) for number in range(2)]
    metric = ranking_metric(jobs)
    assert metric is not None
    assert (metric.label, metric.best(jobs)) == (name, jobs[best])


def test_without_a_difference_or_a_common_metric_no_job_is_the_best(tmp_path: Path) -> None:
    alike = [job(tmp_path, number, best=0.5, **MONITORED) for number in range(2)]
    assert best_text(alike, ranking_metric(alike)) == []
    other = job(tmp_path, 3, best=0.1, monitor="train/loss", mode="min")
    assert ranking_metric([*alike, other]) is None
    assert ranking_metric([job(tmp_path, 4, digest="a")]) is None


def test_what_a_sweep_varies_has_a_column(tmp_path: Path) -> None:
    """Numbers as in the configuration, so that they can be plotted; values of a refused job as typed."""
    jobs = [job(tmp_path, number, best=0.5, **MONITORED) for number in range(2)]
    folder = tmp_path / "2"
    folder.mkdir()
    config = {"engine": {"name": "raw"}, "strategy": {"name": "ddp"}, "devices": 3}
    failure = {"status": "refused", "reason": "model=mlp: no stages\n", "words": ["optimizer.lr=x"], "config": config}
    (folder / "failure.json").write_text(json.dumps(failure))
    rows = rows_of([*jobs, SweepJob(folder, tmp_path)])
    assert [row.varied for row in rows] == [{"optimizer.lr": value} for value in (0.0, 1.0, "x")]
    assert [itemgetter(*LAYOUT)(row.cells) for row in rows] == [
        ("raw", "single", 1),
        ("raw", "single", 1),
        ("raw", "ddp", 3),
    ]
    assert rows[2].cells["reason"] == "refused: model=mlp: no stages"
    reason = "Traceback …\nTypeError: no\nmodel._target_=a.Net: it raises this when it is called."
    (folder / "failure.json").write_text(json.dumps({**failure, "reason": reason}))
    assert rows_of([*jobs, SweepJob(folder, tmp_path)])[2].cells["reason"] == "refused: TypeError: no"
