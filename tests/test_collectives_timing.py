"""The benchmark: its sizes, its arithmetic, the line through its times, and what it leaves."""

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from lockstep.collectives.fit import draw, fit_all, fit_line, fit_table
from lockstep.collectives.primitives import ALL_BUT_OWN, PRIMITIVES, TWICE_ALL_BUT_OWN
from lockstep.collectives.ranks import TourResult
from lockstep.collectives.runner import show_benchmark
from lockstep.collectives.timing import SIZES, Timing, measure, repetitions
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.text_table import figures
from tests.conftest import MakePlan
from tests.rank_helpers import on_ranks

SMALL = (4, 64)


def test_sizes() -> None:
    assert len(SIZES) == 13
    assert (SIZES[0], SIZES[-1]) == (4, 64 * 2**20)
    assert all(repetitions(size)[1] % 2 for size in SIZES[8:]), "the median is a measured one"


def time_every_primitive(plan: Plan, context: RankContext) -> Any:
    able = [primitive for primitive in PRIMITIVES if primitive.min_ranks <= context.world_size]
    return measure(able, 0, SMALL)


@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_every_primitive_is_timed(make_plan: MakePlan, devices: int) -> None:
    plan = make_plan("strategy=ddp", f"devices={devices}", "batch_size=12", "accelerator=cpu")
    timings: list[Timing] = on_ranks(plan, time_every_primitive)  # type: ignore[assignment]
    assert all(timing.seconds > 0 for timing in timings)
    sizes: dict[str, list[int]] = {}
    for timing in timings:
        sizes.setdefault(timing.primitive, []).append(timing.bytes)
    rounded = [-(-size // (4 * devices)) * 4 * devices for size in SMALL]
    assert sizes == {
        primitive.name: [0] if primitive.name == "barrier" else rounded if primitive.cost is ALL_BUT_OWN else [*SMALL]
        for primitive in PRIMITIVES
        if primitive.min_ranks <= devices
    }


def test_bandwidth_as_nccl_tests_count_it() -> None:
    """1 GB in half a second on 4 ranks: 2 GB/s, and 3 GB/s on the bus of an all-reduce."""
    row = Timing("all-reduce (sum)", 10**9, 0.5, 5, TWICE_ALL_BUT_OWN.factor(4)).csv_row()
    assert (row["algorithm_GB_per_s"], row["bus_GB_per_s"]) == pytest.approx((2.0, 3.0))
    assert Timing("barrier", 0, 0.5, 5, 0.0).csv_row()["bus_GB_per_s"] is None
    assert {primitive.name: primitive.cost.factor(4) for primitive in PRIMITIVES} == {
        **dict.fromkeys(("all-reduce (sum)", "all-reduce (max)", "all-reduce (avg)", "ring all-reduce"), 1.5),
        **dict.fromkeys(("gather", "all-gather", "scatter", "reduce-scatter", "all-to-all"), 0.75),
        **dict.fromkeys(("send/recv", "isend/irecv", "batched isend/irecv", "broadcast", "reduce"), 1.0),
        "barrier": 0.0,
    }


def test_the_fit_finds_an_exact_line() -> None:
    sizes = np.array(SIZES, dtype=float)
    for alpha, beta in ((5e-5, 2e-10), (1e-3, 1e-9), (2e-6, 4e-12)):
        assert fit_line(sizes.tolist(), (alpha + sizes * beta).tolist()) == pytest.approx((alpha, beta), rel=1e-7)


def test_the_fit_weighs_relative_errors() -> None:
    """The minimum of a grid around it, and another line than that of plain least squares."""
    sizes = np.array(SIZES, dtype=float)
    seconds = (5e-5 + sizes * 3e-10) * np.exp(0.3 * np.random.default_rng(0).normal(size=len(sizes)))

    def loss(alpha: float, beta: float) -> float:
        return float((((alpha + sizes * beta) / seconds - 1) ** 2).sum())

    alpha, beta = fit_line(sizes.tolist(), seconds.tolist())
    assert all(
        loss(alpha, beta) < loss(alpha * a, beta * b) for a, b in ((1.001, 1), (0.999, 1), (1, 1.001), (1, 0.999))
    )
    assert abs(np.polyfit(sizes, seconds, 1)[1] / alpha - 1) > 1e-3


def test_a_line_does_not_fall() -> None:
    assert fit_line([4.0, 4e6], [1e-3, 1e-4])[1] == 0.0
    assert fit_line([0.0], [1e-5]) == pytest.approx((1e-5, 0.0))


def example_timings(error: float = 0.0) -> list[Timing]:
    """50 µs and 2 GB/s, half of the times longer by `error`; and a barrier of 10 µs."""
    times = [(5e-5 + size / 2e9) * (1 + error * (index % 2)) for index, size in enumerate(SIZES)]
    timings = [Timing("broadcast", size, seconds, 5, 1.0) for size, seconds in zip(SIZES, times, strict=True)]
    return [*timings, Timing("barrier", 0, 1e-5, 40, 0.0)]


def test_fits_say_how_well_they_fit() -> None:
    exact, barrier = fit_all(example_timings())
    assert (exact.algorithm_GB_per_s, exact.bus_GB_per_s) == pytest.approx((2.0, 2.0))
    assert exact.alpha_us == pytest.approx(50)
    assert exact.seconds(10**9) == pytest.approx(0.50005)
    assert exact.median_relative_error < 1e-9
    assert barrier.seconds(10**9) == pytest.approx(1e-5)
    assert (barrier.algorithm_GB_per_s, barrier.bus_GB_per_s) == (None, None)
    assert fit_all(example_timings(error=0.5))[0].median_relative_error > 0.1


def test_what_the_benchmark_leaves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_benchmark(TourResult({}, example_timings()), tmp_path)
    with (tmp_path / "bench.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["bytes"]) for row in rows] == [*SIZES, 0]
    for row in rows[:-1]:
        size, seconds = int(row["bytes"]), float(row["seconds"])
        assert float(row["algorithm_GB_per_s"]) == pytest.approx(size / seconds / 1e9)
    with (tmp_path / "fit.csv").open(newline="") as file:
        [line, barrier] = csv.DictReader(file)
    assert float(line["alpha_us"]) == pytest.approx(50)
    assert float(line["algorithm_GB_per_s"]) == pytest.approx(2)
    assert barrier["bus_GB_per_s"] == ""
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    [broadcast] = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("broadcast")]
    assert broadcast == ["broadcast", "50.0", "2.00", "2.00", "0%"]
    assert fit_table(fit_all(example_timings())).splitlines()[-1].split() == ["barrier", "10.0", "–", "–", "0%"]


def test_figures() -> None:
    assert [figures(value) for value in (None, 0.0, 1234.5, 12.345, 0.0012345)] == ["–", "0", "1234", "12.3", "0.00123"]


def test_the_plot_shows_each_measured_time_and_its_line(tmp_path: Path, saved_figures: list[Figure]) -> None:
    draw(example_timings(), fit_all(example_timings()), tmp_path / "bench.png")
    [axes] = saved_figures[0].axes
    measured, fitted = axes.get_lines()
    np.testing.assert_allclose(np.asarray(measured.get_xdata()), SIZES)
    np.testing.assert_allclose(np.asarray(measured.get_ydata()), [50 + size / 2e3 for size in SIZES])
    np.testing.assert_allclose(np.asarray(fitted.get_ydata()), [50 + size / 2e3 for size in SIZES], rtol=1e-6)
    assert fitted.get_label() == "broadcast: measured and fitted", "the barrier moves nothing"
    draw(example_timings()[-1:], fit_all(example_timings()[-1:]), tmp_path / "empty.png")


@pytest.mark.slow
def test_the_rank_modules_bring_no_more_than_they_need() -> None:
    code = "import sys, lockstep.collectives.ranks, lockstep.collectives.failures; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert not {"matplotlib", "scipy", "lightning"} & set(out.split())
