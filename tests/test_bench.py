"""The bench: its arithmetic by hand, invalid input, and a run from start to end."""

import csv
from pathlib import Path

import pytest

from bench import layouts, workloads
from bench.__main__ import HELP, BenchOptions, run_bench
from bench.traffic import expected_traffic
from lockstep.base.config_error import ConfigError
from lockstep.command.compose import compose_job
from lockstep.command.entry_point import options

QUICK = ("data.samples=100", "max_epochs=1")


def test_ratios_are_of_the_same_round() -> None:
    """3/2, 2/4, 6/3: 1.5, 0.5, 2; the ratio of the medians would be 1."""
    values = {"bare": (2.0, 4.0, 3.0), "stock": (6.0, 4.0, 6.0), "lockstep": (3.0, 2.0, 6.0)}
    cells = workloads.row("linear", "lockstep", values)
    assert [*cells.values()] == ["linear", "lockstep", 3.0, 1.5, 0.5, 2.0, 0.5, 0.5, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_a_workload_is_a_valid_command_and_in_the_help(name: str) -> None:
    workload = workloads.WORKLOADS[name]
    for words in (workload.full, workload.quick):
        for overrides in workload.variants.values():
            compose_job([*workload.overrides, *words, *overrides])
    assert f"\n  {name} " in HELP


@pytest.mark.parametrize(
    ("word", "message"),
    [("only=s3", "only=s3: there is no such workload"), ("quick=perhaps", "quick=perhaps: it takes true or false")],
)
def test_invalid_input(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        run_bench(options(BenchOptions, [word]))


@pytest.mark.slow
def test_from_start_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Both baselines and Lockstep train in turn."""
    small = workloads.Workload(workloads.WORKLOADS["linear"].overrides, quick=QUICK)
    monkeypatch.setattr(workloads, "WORKLOADS", {"linear": small})
    monkeypatch.chdir(tmp_path)
    assert run_bench(BenchOptions(quick=True)) == 0
    folder = Path(capfd.readouterr().out.splitlines()[-1].strip())
    with (folder / "bench.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [row["variant"] for row in rows] == ["bare", "stock", "lockstep"]
    assert [float(rows[place][f"of {name}"]) for place, name in ((0, "bare"), (1, "stock"))] == [1, 1]
    assert all(float(row["seconds"]) > 0 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", layouts.STRATEGIES)
def test_the_collectives_of_a_step_are_those_of_theory(strategy: str) -> None:
    sizes = {"width": 64, "layers": 2, "length": 16, "samples": 8}
    traffic = layouts.train(strategy, 2, sizes, "bench.traffic")
    assert traffic == expected_traffic(2, **sizes)[strategy]
    assert traffic != expected_traffic(2, **{**sizes, "layers": 3})[strategy]
