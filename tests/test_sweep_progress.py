"""A sweep says which of how many jobs begins, and how long the rest takes."""

import re
from typing import Any

import pytest
from omegaconf import OmegaConf

from lockstep.sweep.progress import SweepProgress, number_of_jobs

HYDRAS = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


def config(*words: str, **sweeper: Any) -> Any:
    values = {"_target_": HYDRAS, "params": None} | sweeper
    return OmegaConf.create({"hydra": {"sweeper": values, "overrides": {"task": list(words)}}})


@pytest.mark.parametrize(
    ("words", "sweeper", "jobs"),
    [
        (["a=1,2,3", "b=[1,2],[3]", "c=1"], {}, 6),
        (["a=range(1,5)"], {"params": {"b": "choice(x,y)"}}, 8),
        (["c=1"], {}, 1),
        (["a=1,2"], {"_target_": "optuna.Sweeper", "n_trials": 7}, 7),
        (["a=1,2"], {"_target_": "other.Sweeper"}, None),
    ],
)
def test_jobs_are_counted(words: list[str], sweeper: dict[str, Any], jobs: int | None) -> None:
    assert number_of_jobs(config(*words, **sweeper), words) == jobs


def test_a_line_has_what_varies_and_the_time_left() -> None:
    progress = SweepProgress(config("a=1,2,3", "c=1"))
    assert progress.begin(0, ["a=1", "c=1"]) == "job 0 (1 of 3): a=1"
    progress.began -= 30.0
    line = progress.begin(1, ["a=2", "c=1"])
    assert re.fullmatch(r"job 1 \(2 of 3\): a=2; 0:01:00 left, done at about \d\d:\d\d", line)
    unknown = SweepProgress(config("c=1", _target_="other.Sweeper"))
    assert unknown.begin(4, ["a=0.3", "c=1"]) == "job 4: a=0.3"
