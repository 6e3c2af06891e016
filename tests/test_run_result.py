"""What `lockstep.run` returns, and the summary that a run prints."""

import json
import pickle
from pathlib import Path

import pytest

from lockstep import ConfigError, RankFailed, run
from lockstep.command.run_result import RunResult, run_summary
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


def test_history_by_hand(result: RunResult) -> None:
    assert result.history == [
        {"epoch": 1, "train/loss": 2.5, "lr": 0.4, "val/acc": 0.5},
        {"epoch": 2, "lr": 0.3},
    ]


def test_it_is_the_metrics_and_shows_a_summary(result: RunResult) -> None:
    copy = pickle.loads(pickle.dumps(result))
    assert (copy, vars(copy), type(copy)) == (METRICS, vars(result), RunResult)
    assert repr(result).splitlines()[0] == "  run     <b> on digits, ddp × 2, raw, cpu, 10 parameters"
    assert repr(result).splitlines()[-1] == f"  folder  {result.folder}"


def test_a_notebook_shows_errors_without_the_tracebacks_of_lockstep() -> None:
    """IPython calls `_render_traceback_` of an error that has it."""
    for error in (ConfigError("devices=0: it must be 1 or more."), RankFailed(1, "its traceback")):
        assert error._render_traceback_() == [f"{type(error).__name__}: {error}"]


def test_a_sweep_is_no_run() -> None:
    with pytest.raises(ConfigError, match=r"-m: run\(…\) runs one job; call it once for each"):
        run(["-m", "optimizer.lr=0.1,0.2"])


TRAINED = {
    **{"engine": "raw", "strategy": "ddp", "devices": 2, "num_nodes": 2, "world_size": 4, "accelerator": "cpu"},
    **{"model": "mlp", "data": "digits", "lr": 0.001, "epochs": 3, "steps": 60, "train_seconds": 0.884784},
    **{"samples_per_second": 4262.06, "train/loss": 0.276719, "val/loss": 0.249028, "val/acc": 0.894444},
    **{"parameters": 1234, "monitor": "val/acc", "mode": "max", "best": 0.9, "best_epoch": 2},
    **{"test/acc": 0.933333, "digest": "6c", "total_seconds": 13.37},
}


def test_each_line_has_a_name() -> None:
    assert run_summary(TRAINED).splitlines() == [
        "  run     mlp on digits, ddp × 4, raw, cpu, 1234 parameters",
        "  time    3 epochs, 60 steps in 0.885 s: 4262 samples/s, 13.4 s in all",
        "  train   loss 0.2767",
        "  val     loss 0.249, acc 0.8944",
        "  test    acc 0.9333",
        "  best    val/acc 0.9 in epoch 2",
    ]


def test_a_run_that_only_tests() -> None:
    names = ("engine", "strategy", "devices", "num_nodes", "accelerator", "model", "data", "test/acc", "parameters")
    lines = run_summary({name: TRAINED[name] for name in names}).splitlines()
    assert [line.split()[0] for line in lines] == ["run", "test"]
