"""The files of a run: complete, with numbers in full precision."""

from pathlib import Path

import pytest

from lockstep.base.config_error import ConfigError
from lockstep.base.files import save_json
from lockstep.command.job import run
from lockstep.runs.run_files import METRICS, Metrics, removed_if_refused
from tests.comparing import metrics_in


def test_metrics_keep_full_precision_and_nan_and_infinity_become_null(tmp_path: Path) -> None:
    metrics: Metrics = {"train/loss": 0.1 + 0.2, "engine": "lightning", "epochs": 1}
    save_json(tmp_path / METRICS, {**metrics, "val/loss": float("nan"), "test/loss": float("inf")})
    assert metrics_in(tmp_path) == {**metrics, "val/loss": None, "test/loss": None}
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.json"]


@pytest.mark.parametrize(("below", "reason"), [("", "File exists"), ("x", "Not a directory")])
def test_a_run_folder_that_cannot_be_created(below: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / below
    message = rf"^hydra.run.dir={folder}: the run's files cannot be written there \({reason}\); write a folder"
    with pytest.raises(ConfigError, match=message):
        run(["data=points", "model=linear", f"hydra.run.dir={folder}"])


@pytest.mark.parametrize("kept", [None, "config.yaml", "checkpoints"])
def test_a_refused_run_leaves_nothing(kept: str | None, tmp_path: Path) -> None:
    """Unless the folder is an earlier run's, or training had begun."""
    folder = tmp_path / "run"
    (folder / "tensorboard" / "label").mkdir(parents=True)
    if kept == "config.yaml":
        (folder / kept).touch()

    def refused() -> None:
        with removed_if_refused(folder):
            (folder / "config.yaml").touch()
            if kept == "checkpoints":
                (folder / kept).mkdir()
            raise ConfigError

    with pytest.raises(ConfigError):
        refused()
    assert folder.exists() == (kept is not None)
