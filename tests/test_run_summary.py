"""The end of a run: a screen's third at most, in any terminal."""

import pytest

from lockstep.run_summary import run_summary

METRICS = {
    **{"engine": "raw", "strategy": "ddp", "devices": 2, "num_nodes": 2, "world_size": 4, "accelerator": "cpu"},
    **{"model": "mlp", "data": "digits", "lr": 0.001, "epochs": 3, "steps": 60, "train_seconds": 0.884784},
    **{"samples_per_second": 4262.06, "train/loss": 0.276719, "val/loss": 0.249028, "val/acc": 0.894444},
    **{"monitor": "val/acc", "mode": "max", "best": 0.9, "test/acc": 0.933333, "digest": "6c", "total_seconds": 13.37},
}


def test_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert run_summary(METRICS).splitlines() == [
        "  run     mlp on digits, ddp × 4, raw, cpu",
        "  time    3 epochs, 60 steps in 0.8848 s: 4262 samples/s, 13.37 s in all",
        "  train   loss 0.2767",
        "  val     loss 0.249, acc 0.8944",
        "  test    acc 0.9333",
        "  best    val/acc 0.9",
    ]


def test_values_of_a_module_and_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names are its own; of many the first are shown."""
    monkeypatch.setenv("COLUMNS", "40")
    many = {f"value_{number}": number / 4 for number in range(20)}
    head = {name: own for name, own in METRICS.items() if "/" not in name and name not in ("best", "monitor")}
    lines = run_summary(head | many).splitlines()
    assert max(map(len, lines)) <= 40
    assert [line.strip() for line in lines if "value_0" in line] == ["logged  value_0 0, value_1 0.25,"]
    assert "more" in lines[-1]


def test_a_run_that_only_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    told = ("engine", "strategy", "devices", "num_nodes", "accelerator", "model", "data", "test/acc")
    lines = run_summary({name: METRICS[name] for name in told}).splitlines()
    assert [line.split()[0] for line in lines] == ["run", "test"]


@pytest.mark.parametrize("width", range(30, 60))
def test_no_line_ends_between_a_number_and_its_unit(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = run_summary(METRICS)
    assert "\N{NO-BREAK SPACE}" not in text
    assert max(map(len, text.splitlines())) <= width
    for whole in ("0.8848 s", "4262 samples/s", "13.37 s", "60 steps", "loss 0.249", "acc 0.8944"):
        assert whole in text
