"""Hydra's multirun: every job as if it were the only one; what cannot be does not stop the rest."""

import csv
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from lockstep.runs.sweep.summary import SweepSummary
from tests.comparing import metrics_in
from tests.conftest import ROOT, Command


def results(command: Command) -> dict[int, dict[str, Any]]:
    """metrics.json of each job of the only sweep."""
    paths = command.folder.glob("logs/train/sweeps/*/*/metrics.json")
    return dict(sorted((int(path.parent.name), json.loads(path.read_text())) for path in paths))


@pytest.mark.slow
def test_every_cell_runs_alone_and_an_impossible_one_is_reported(command: Command) -> None:
    """The README's command, shorter."""
    ended = command.train("-m", "strategy=single,ddp,dp", "devices=1,2", "max_epochs=1", "threads=1", "logger=none")
    assert ended.status == 0, ended.err
    raised = "job 1 refused: devices=2: strategy=single trains on one device; write devices=1, or strategy=ddp."
    assert ended.err.splitlines() == [raised]
    assert "sweep: 5 finished, 1 refused, 0 failed" in ended.out
    jobs = results(command)
    cells = {number: (job["strategy"], job["devices"]) for number, job in jobs.items()}
    assert cells == {0: ("single", 1), 2: ("ddp", 1), 3: ("ddp", 2), 4: ("dp", 1), 5: ("dp", 2)}
    alone = command.train("strategy=ddp", "devices=2", "max_epochs=1", "threads=1", "logger=none")
    assert metrics_in(alone.run_dir)["digest"] == jobs[3]["digest"]
    assert jobs[0]["digest"] != jobs[3]["digest"], "float32 sums in another order: the comparison can fail"
    check_the_table(command, ended.out, jobs)


def check_the_table(command: Command, out: str, jobs: dict[int, dict[str, Any]]) -> None:
    """The numbers of sweep.csv, worked out again from each job's files; the terminal's rows; the page."""
    [folder] = command.folder.glob("logs/train/sweeps/*")
    with (folder / "sweep.csv").open() as file:
        first, refused, *rows = csv.DictReader(file)
    assert (refused["job"], refused["strategy"], refused["devices"]) == ("1", "single", "2")
    assert refused["reason"].startswith("refused: devices=2: strategy=single trains on one device")
    rows.insert(0, first)
    for row, job in zip(rows, jobs.values(), strict=True):
        speed_up = float(job["samples_per_second"]) / float(jobs[0]["samples_per_second"])
        assert float(row["speed_up"]) == pytest.approx(speed_up)
        assert float(row["test_acc"]) == job["test/acc"]
    assert [row["verdict"].split()[0] for row in rows] == ["reference", "identical", "within", "identical", "within"]
    assert len([line for line in out.splitlines() if line.startswith(tuple("012345"))]) >= 6
    assert "5 of 6 jobs finished" in (folder / "report.html").read_text()


def test_a_failed_job_does_not_stop_the_sweep(command: Command) -> None:
    """The memory of a rank ends in the fifth step, which the second job does not have."""
    line = ("model=regression", "data=line", "strategy=ddp", "devices=2", "max_epochs=1", "logger=none")
    train = (sys.executable, str(ROOT / "tests" / "fault_injection" / "train.py"))
    ended = command(*train, "-m", *line, "data.samples=1000,100", PYTHONPATH=str(ROOT), FAULT="memory@1:step:5")
    assert ended.status == 1
    assert "sweep: 1 finished, 0 refused, 1 failed" in ended.out
    assert "job 0 failed: Memory ran out: lower" in ended.out, "the table shortens the reason"
    assert list(results(command)) == [1]
    assert ended.err.startswith("job 0 failed: rank ")
    assert ended.err.count("Traceback") == 1
    assert ended.err.splitlines()[-1].startswith("Memory ran out: ")
    [reason] = command.folder.glob("logs/train/sweeps/*/0/failure.json")
    assert "allocate" in json.loads(reason.read_text())["reason"]
    [table] = command.folder.glob("logs/train/sweeps/*/sweep.csv")
    with table.open() as file:
        failed, finished = csv.DictReader(file)
    assert failed["reason"].startswith("failed: ")
    assert "Memory ran out" in failed["reason"]
    assert (finished["devices"], finished["speed_up"], finished["reason"]) == ("2", "", ""), "no run on one device"


@pytest.mark.slow
def test_a_search_by_optuna_goes_on_after_a_trial_that_fails(command: Command) -> None:
    pytest.importorskip("optuna", reason="needs pip install hydra-optuna-sweeper")
    words = ("-m", "experiment=[example,optuna]", "max_epochs=2", "batch_size=60", "logger=none", "threads=1")
    ended = command.train(*words, "optimizer.lr=choice(0.01,1e30,1e-6)", "hydra.sweeper.n_trials=4")
    assert ended.status == 1, "a trial has failed"
    assert "the loss of step 2 is nan" in ended.err
    [sweep] = command.folder.glob("logs/train/sweeps/*")
    results = yaml.safe_load((sweep / "optimization_results.yaml").read_text())
    assert results["best_params"] == {"optimizer.lr": 0.01}
    again = re.search(r"^best: job \d, val/acc .*\n  lockstep (.*)$", ended.out, re.MULTILINE)
    assert again is not None
    assert "hydra" not in again[1]
    repeated = command.train(*shlex.split(again[1]))
    assert (repeated.status, metrics_in(repeated.run_dir)["val/acc"]) == (0, results["best_value"])


def test_an_unknown_key_stops_a_sweep_before_its_first_job(command: Command) -> None:
    ended = command.train("seed=1,2", "-m", "devicez=1")
    assert ended.status == 2
    assert ended.err.splitlines()[-1] == "devicez=1: there is no such key (did you mean devices?); write devices=VALUE."
    ended = command.train("optimizer.lr=interval(1,2)", "-m")
    assert ended.err == "optimizer.lr=interval(1,2): BasicSweeper does not support sweep type : INTERVAL_SWEEP.\n"
    assert not [path for path in command.folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("status", "code"), [("refused", 2), ("failed", 1)])
def test_exit_status_without_a_finished_job(
    status: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"engine": "raw", "strategy": "ddp", "devices": 2}
    (tmp_path / "0").mkdir()
    failure = {"status": status, "reason": "devices=2: no", "words": ["devices=2"], "config": config}
    (tmp_path / "0" / "failure.json").write_text(json.dumps(failure))
    summary = SweepSummary()
    summary.began = 0.0
    with pytest.raises(SystemExit) as ended:
        summary.on_multirun_end(OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}}))
    assert ended.value.code == code
    assert f"0 finished, {code - 1} refused, {2 - code} failed" in capsys.readouterr().out


def test_joblib_launcher_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """With or without the plugin."""
    target = {"_target_": "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"}
    with pytest.raises(SystemExit, match="2"):
        SweepSummary().on_multirun_start(OmegaConf.create({"hydra": {"launcher": target}}))
    assert capsys.readouterr().err.startswith("hydra/launcher=joblib: each of its jobs")


def test_another_sweep_in_the_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its jobs would write into those of the first."""
    config = OmegaConf.create({"hydra": {"launcher": {}, "sweeper": {}, "sweep": {"dir": str(tmp_path)}}})
    first, second = SweepSummary(), SweepSummary()
    first.on_multirun_start(config)
    with first.locked, pytest.raises(SystemExit, match="2"):
        second.on_multirun_start(config)
    assert capsys.readouterr().err.startswith(f"hydra.sweep.dir={tmp_path}: another command is running in it")
    second.on_multirun_start(config)
    second.locked.close()
