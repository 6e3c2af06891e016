"""The summary of a run, and the line of an epoch."""

from pathlib import Path

import pytest

from lockstep.runs.run_summary import run_summary

METRICS = {
    **{"engine": "raw", "strategy": "ddp", "devices": 2, "num_nodes": 2, "world_size": 4, "accelerator": "cpu"},
    **{"model": "mlp", "data": "digits", "lr": 0.001, "epochs": 3, "steps": 60, "train_seconds": 0.884784},
    **{"samples_per_second": 4262.06, "train/loss": 0.276719, "val/loss": 0.249028, "val/acc": 0.894444},
    **{"parameters": 1234, "monitor": "val/acc", "mode": "max", "best": 0.9, "best_epoch": 2},
    **{"test/acc": 0.933333, "digest": "6c", "total_seconds": 13.37},
}


def test_each_line_has_a_name() -> None:
    assert run_summary(METRICS).splitlines() == [
        "  run     mlp on digits, ddp × 4, raw, cpu, 1234 parameters",
        "  time    3 epochs, 60 steps in 0.885 s: 4262 samples/s, 13.4 s in all",
        "  train   loss 0.2767",
        "  val     loss 0.249, acc 0.8944",
        "  test    acc 0.9333",
        "  best    val/acc 0.9 in epoch 2",
    ]


@pytest.mark.parametrize(
    ("test", "best_epoch", "line"),
    [
        (True, 2, "in epoch 2; tested: the last net (test=best: this one)"),
        (True, 3, "in epoch 3; tested: the last net"),
        ("best", 2, "in epoch 2; tested: this net"),
    ],
)
def test_the_net_that_was_tested_and_the_next_command(test: bool | str, best_epoch: int, line: str) -> None:
    *_, best, board = run_summary({**METRICS, "best_epoch": best_epoch}, test, Path("a run")).splitlines()
    assert best == f"  best    val/acc 0.9 {line}"
    assert board == "  next    tensorboard --logdir 'a run'"


def test_the_time_is_that_of_each_engine_or_since_the_checkpoint() -> None:
    both = run_summary({**METRICS, "lightning/train_seconds": 0.2, "raw/train_seconds": 100.4}).splitlines()[1]
    assert both == "  time    3 epochs, 60 steps: lightning 0.2 s, raw 100 s, 13.4 s in all"
    resumed = run_summary({**METRICS, "total_seconds": 12345.6}, resumed=True).splitlines()[1]
    assert resumed == "  time    3 epochs, 60 steps, resumed for 0.885 s: 4262 samples/s, 12346 s in all"


def test_of_many_values_the_first_are_shown() -> None:
    many = {f"value_{number}": number / 4 for number in range(20)}
    last = run_summary({**METRICS, **many}).splitlines()[-1]
    assert last.startswith("  logged  value_0 0, value_1 0.25,")
    assert last.endswith("and 8 more")


def test_a_run_that_only_tests() -> None:
    names = ("engine", "strategy", "devices", "num_nodes", "accelerator", "model", "data", "test/acc", "parameters")
    lines = run_summary({name: METRICS[name] for name in names}).splitlines()
    assert [line.split()[0] for line in lines] == ["run", "test"]
