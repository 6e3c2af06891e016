"""The files of a run: complete, with numbers in full precision."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.config_error import ConfigError
from lockstep.job import run, write_config
from lockstep.plan import Plan
from lockstep.run_files import save_metrics


def test_metrics_keep_full_precision(tmp_path: Path) -> None:
    metrics: dict[str, str | int | float] = {"train/loss": 0.1 + 0.2, "engine": "lightning"}
    save_metrics(tmp_path, metrics)
    assert json.loads((tmp_path / "metrics.json").read_text()) == metrics
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.json"]


def test_nan_and_infinity_become_null(tmp_path: Path) -> None:
    save_metrics(tmp_path, {"train/loss": float("nan"), "val/loss": float("inf"), "epochs": 1})
    assert json.loads((tmp_path / "metrics.json").read_text()) == {"train/loss": None, "val/loss": None, "epochs": 1}


def test_temporary_files_of_a_killed_run_are_removed(make_plan: Callable[..., Plan], tmp_path: Path) -> None:
    """In its folder and that of its checkpoints; no file of the user's."""
    temporary = [tmp_path / ".metrics.json.part", tmp_path / "checkpoints" / ".last.ckpt.part"]
    others = [tmp_path / "a.part", tmp_path / "checkpoints" / "last.ckpt", tmp_path / ".film.part"]
    (tmp_path / "checkpoints").mkdir()
    for path in (*temporary, *others):
        path.touch()
    write_config(make_plan("accelerator=cpu"))
    assert [path.exists() for path in (*temporary, *others)] == [False, False, True, True, True]


@pytest.mark.parametrize("below", ["", "x"])
def test_a_run_folder_that_cannot_be_created(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    reason = {"": "File exists", "x": "Not a directory"}[below]
    folder = tmp_path / "file" / below
    with pytest.raises(
        ConfigError, match=rf"^hydra.run.dir={folder}: the run's folder cannot be made \({reason}\); write"
    ):
        run(["data=points", "model=linear", f"hydra.run.dir={folder}"])
