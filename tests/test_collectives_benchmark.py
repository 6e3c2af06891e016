"""The benchmark of the primitives: its sizes, the line through its times, and its files."""

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from lockstep.collectives.benchmark import SIZES, Timing, bandwidths, fit_line, measure, repetitions, show_benchmark
from lockstep.collectives.primitives import ALL_BUT_OWN, PRIMITIVES
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from tests.conftest import MakePlan
from tests.rank_helpers import on_ranks

SMALL = (4, 64)


def test_sizes() -> None:
    assert len(SIZES) == 13
    assert (SIZES[0], SIZES[-1]) == (4, 64 * 2**20)
    assert all(repetitions(size)[1] % 2 for size in SIZES[8:]), "the median is a measured one"


def time_every_primitive(plan: Plan, context: RankContext) -> Any:
    return measure(PRIMITIVES, 0, SMALL)


def test_every_primitive_is_timed(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp", "devices=3", "batch_size=12", "accelerator=cpu")
    timings: list[Timing] = on_ranks(plan, time_every_primitive)  # type: ignore[assignment]
    assert all(timing.seconds > 0 for timing in timings)
    assert [(timing.primitive, timing.bytes) for timing in timings] == [
        (primitive.name, size)
        for primitive in PRIMITIVES
        for size in ((0,) if primitive.name == "barrier" else (12, 72) if primitive.cost == ALL_BUT_OWN else SMALL)
    ]
    assert {timing.bus_factor for timing in timings if timing.primitive.startswith("all-reduce")} == {4 / 3}


def test_bandwidth_as_nccl_tests_count_it() -> None:
    """2 GB/s on 4 ranks are 3 GB/s on the bus of an all-reduce."""
    assert bandwidths(2e9, 1.5) == (2.0, 3.0)
    assert bandwidths(0.0, 1.5) == (None, None)


def test_the_fit_finds_an_exact_line() -> None:
    sizes = np.array(SIZES, dtype=float)
    for alpha, beta in ((5e-5, 2e-10), (1e-3, 1e-9), (2e-6, 4e-12)):
        assert fit_line(sizes.tolist(), (alpha + sizes * beta).tolist()) == pytest.approx((alpha, beta), rel=1e-7)
    assert fit_line([4.0, 4e6], [1e-3, 1e-4])[1] == 0.0
    assert fit_line([0.0], [1e-5]) == (1e-5, 0.0)


def test_the_fit_minimizes_relative_errors() -> None:
    sizes = np.array(SIZES, dtype=float)
    seconds = (5e-5 + sizes * 3e-10) * np.exp(0.3 * np.random.default_rng(0).normal(size=len(sizes)))

    def loss(alpha: float, beta: float) -> float:
        return float((((alpha + sizes * beta) / seconds - 1) ** 2).sum())

    alpha, beta = fit_line(sizes.tolist(), seconds.tolist())
    assert all(
        loss(alpha, beta) < loss(alpha * a, beta * b) for a, b in ((1.001, 1), (0.999, 1), (1, 1.001), (1, 0.999))
    )


def test_files_and_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str], saved_figures: list[Figure]) -> None:
    """A broadcast of 50 µs and 2 GB/s, and a barrier of 10 µs, which is not in the plot."""
    times = [(size, 5e-5 + size / 2e9) for size in SIZES]
    timings = [Timing("broadcast", size, seconds, 5, 1.0, size / seconds / 1e9, 0.0) for size, seconds in times]
    show_benchmark([*timings, Timing("barrier", 0, 1e-5, 40, 0.0, None, None)], tmp_path)
    with (tmp_path / "bench.csv").open(newline="") as file:
        assert [int(row["bytes"]) for row in csv.DictReader(file)] == [*SIZES, 0]
    with (tmp_path / "fit.csv").open(newline="") as file:
        broadcast, barrier = csv.DictReader(file)
    assert float(broadcast["alpha_us"]) == pytest.approx(50)
    assert float(broadcast["algorithm_GB_per_s"]) == pytest.approx(2)
    assert (barrier["algorithm_GB_per_s"], barrier["bus_GB_per_s"]) == ("", "")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[-2:] == [["broadcast", "50.0", "2.00", "2.00", "0%"], ["barrier", "10.0", "–", "–", "0%"]]
    measured, fitted = saved_figures[0].axes[0].get_lines()
    for points in (measured, fitted):
        np.testing.assert_allclose(np.asarray(points.get_ydata()), [1e6 * seconds for _, seconds in times], rtol=1e-6)
    assert fitted.get_label() == "broadcast: measured and fitted"


@pytest.mark.slow
def test_ranks_do_not_import_what_only_the_command_needs() -> None:
    code = "import sys, lockstep.collectives.ranks, lockstep.collectives.failures; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert not {"matplotlib", "lightning"} & set(out.split())
