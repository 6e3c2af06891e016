"""What `lockstep.run` returns."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from lockstep import ConfigError, RankFailed, run
from lockstep.command.run_result import RunResult
from tests.test_tolerance import run_metadata

LINES = [
    {"run": run_metadata()},
    {"step": {"epoch": 1, "step": 1, "samples": 3, "lr": 0.5, "loss_sum": 6.0}},
    {"step": {"epoch": 1, "step": 2, "samples": 1, "lr": 0.4, "loss_sum": 4.0}},
    {"validation": {"epoch": 1, "after_step": 1, "after_batch": 1, "val/acc": 0.25}},
    {"validation": {"epoch": 1, "val/acc": 0.5}},
    {"step": {"epoch": 2, "step": 3, "samples": 2, "lr": 0.3, "loss_sum": None}},
    {"step": {"epoch": 2, "step": 4, "samples": 2, "lr": 0.3, "loss_sum": 0.0}},
]
METRICS = {
    **{"engine": "raw", "strategy": "ddp", "devices": 2, "num_nodes": 1, "accelerator": "cpu", "model": "<b>"},
    **{"data": "digits", "parameters": 10, "epochs": 2, "steps": 3, "train/loss": 1.5},
}


@pytest.fixture
def result(tmp_path: Path) -> RunResult:
    (tmp_path / "record.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return RunResult(METRICS, tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("with_pandas", [True, False])
def test_history_by_hand(result: RunResult, monkeypatch: pytest.MonkeyPatch, with_pandas: bool) -> None:
    if with_pandas:
        pytest.importorskip("pandas", reason="needs pandas")
    else:
        monkeypatch.setattr("lockstep.command.run_result.find_spec", lambda _: None)
    history = result.history
    assert type(history).__name__ == ("DataFrame" if with_pandas else "dict")
    expected = {"epoch": [1, 2], "train/loss": [2.5, np.nan], "lr": [0.4, 0.3], "val/acc": [0.5, np.nan]}
    assert list(history) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(np.asarray(history[name]), values)


def test_it_is_the_metrics(result: RunResult) -> None:
    assert result == METRICS
    assert result["train/loss"] == 1.5
    copy = pickle.loads(pickle.dumps(result))
    assert (copy, vars(copy), type(copy)) == (result, vars(result), RunResult)


def test_what_a_terminal_shows(result: RunResult) -> None:
    assert repr(result).splitlines()[0] == "run     <b> on digits, ddp × 2, raw, cpu, 10 parameters"
    assert repr(result).splitlines()[-1] == f"folder  {result.folder}"


def test_a_notebook_shows_errors_without_the_tracebacks_of_lockstep() -> None:
    """IPython calls `_render_traceback_` of an error that has it."""
    for error in (ConfigError("devices=0: it must be 1 or more."), RankFailed(1, "its traceback")):
        assert error._render_traceback_() == [f"{type(error).__name__}: {error}"]


def test_a_sweep_is_no_run() -> None:
    with pytest.raises(ConfigError, match=r"-m: run\(…\) runs one job; call it once for each"):
        run(["-m", "optimizer.lr=0.1,0.2"])


def test_a_run_without_a_record_has_an_empty_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.command.run_result.find_spec", lambda _: None)
    assert RunResult({}, tmp_path).history == {}
