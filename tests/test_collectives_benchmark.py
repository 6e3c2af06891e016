"""The benchmark of the primitives: its sizes, the line through its times, and its files."""

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from lockstep.collectives.benchmark import SIZES, bandwidths, measure, show_benchmark
from lockstep.collectives.primitives import ALL_BUT_OWN, PRIMITIVES
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from tests.conftest import MakePlan
from tests.rank_helpers import on_ranks

SMALL = (4, 64)


def time_every_primitive(plan: Plan, context: RankContext) -> Any:
    return measure(PRIMITIVES, 0, SMALL)


def test_every_primitive_is_timed(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp", "devices=3", "batch_size=12", "accelerator=cpu")
    timings: list[dict[str, Any]] = on_ranks(plan, time_every_primitive)  # type: ignore[assignment]
    assert all(timing["seconds"] > 0 for timing in timings)
    assert [(timing["primitive"], timing["bytes"]) for timing in timings] == [
        (primitive.name, size)
        for primitive in PRIMITIVES
        if primitive.name != "barrier"
        for size in ((12, 72) if primitive.cost == ALL_BUT_OWN else SMALL)
    ]
    assert {timing["bus_factor"] for timing in timings if timing["primitive"].startswith("all-reduce")} == {4 / 3}


def test_bandwidth_as_nccl_tests_count_it() -> None:
    """2 GB/s on 4 ranks are 3 GB/s on the bus of an all-reduce."""
    assert bandwidths(2e9, 1.5) == {"algorithm_GB_per_s": 2.0, "bus_GB_per_s": 3.0}


def shown(seconds: Any, folder: Path) -> dict[str, str]:
    """Show a broadcast of all sizes that took these seconds; return its row of fit.csv."""
    times = zip(SIZES, seconds.tolist(), strict=True)
    show_benchmark([{"primitive": "broadcast", "bytes": n, "seconds": t, "bus_factor": 1.0} for n, t in times], folder)
    with (folder / "fit.csv").open(newline="") as file:
        [row] = csv.DictReader(file)
    return row


def test_the_fit_finds_an_exact_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broadcast of 50 µs and 2 GB/s."""
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    seconds = 5e-5 + np.array(SIZES) / 2e9
    row = shown(seconds, tmp_path)
    assert float(row["alpha_us"]) == pytest.approx(50)
    assert float(row["bus_GB_per_s"]) == pytest.approx(2)
    assert capsys.readouterr().out.splitlines()[-1].split()[:4] == ["broadcast", "50.0", "2.00", "2.00"]
    with (tmp_path / "bench.csv").open(newline="") as file:
        assert [int(row["bytes"]) for row in csv.DictReader(file)] == [*SIZES]
    for points in figures[0].axes[0].get_lines():
        np.testing.assert_allclose(np.asarray(points.get_ydata()), 1e6 * seconds, rtol=1e-6)


def test_the_fit_minimizes_relative_errors(tmp_path: Path) -> None:
    sizes = np.array(SIZES, dtype=float)
    seconds = (5e-5 + sizes * 3e-10) * np.exp(0.3 * np.random.default_rng(0).normal(size=len(sizes)))

    def loss(alpha: float, beta: float) -> float:
        return float((((alpha + sizes * beta) / seconds - 1) ** 2).sum())

    row = shown(seconds, tmp_path)
    alpha, beta = float(row["alpha_us"]) / 1e6, 1e-9 / float(row["algorithm_GB_per_s"])
    for a, b in ((1.001, 1), (0.999, 1), (1, 1.001), (1, 0.999)):
        assert loss(alpha, beta) < loss(alpha * a, beta * b)


@pytest.mark.slow
def test_ranks_do_not_import_what_only_the_command_needs() -> None:
    code = "import sys, lockstep.collectives.failures; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert not {"matplotlib", "lightning"} & set(out.split())
