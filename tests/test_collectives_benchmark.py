"""The benchmark of the primitives: its sizes, the line through its times, and its files."""

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from lockstep.collectives.benchmark import SIZES, measure, show_benchmark
from lockstep.collectives.primitives import ALL_BUT_OWN, PRIMITIVES
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from tests.conftest import MakePlan
from tests.rank_helpers import on_ranks

SMALL = (4, 64)


def time_every_primitive(plan: Plan, context: RankContext) -> Any:
    return measure(0, SMALL)


@pytest.mark.slow
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


def test_the_fit_finds_an_exact_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of 50 µs and 2 GB/s, which are 3 GB/s on the bus of an all-reduce of 4 ranks."""
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    seconds = 5e-5 + np.array(SIZES) / 2e9
    times = zip(SIZES, seconds.tolist(), strict=True)
    rows = [{"primitive": "all-reduce", "bytes": size, "seconds": time, "bus_factor": 1.5} for size, time in times]
    show_benchmark(rows, tmp_path)
    assert capsys.readouterr().out.splitlines()[-1].split()[:4] == ["all-reduce", "50.0", "2.00", "3.00"]
    with (tmp_path / "bench.csv").open(newline="") as file:
        assert [int(row["bytes"]) for row in csv.DictReader(file)] == [*SIZES]
    for points in figures[0].axes[0].get_lines():
        np.testing.assert_allclose(np.asarray(points.get_ydata()), 1e6 * seconds, rtol=1e-6)


@pytest.mark.slow
def test_ranks_do_not_import_what_only_the_command_needs() -> None:
    code = "import sys, lockstep.collectives.failures; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert not {"matplotlib", "lightning"} & set(out.split())
