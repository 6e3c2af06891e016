"""A sweep's picture: the panels follow what varies, and each says what it shows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from lockstep.runs.sweep.jobs import RankingMetric, SweepRow
from lockstep.runs.sweep.plot import draw, label, panels_of

METRIC = RankingMetric("best", "best val/acc", "max")


def row(number: int, strategy: str = "ddp", devices: int = 1, timed: bool = True, **varied: Any) -> SweepRow:
    """Return a job whose devices share nine tenths of the work."""
    cells = {"engine": "raw", "strategy": strategy, "devices": devices, "best": "*" if number == 3 else ""}
    cells |= {"job": number, "reason": "", "speed_up": 1 + 0.9 * (devices - 1) if timed else None}
    options = {name.replace("__", "."): value for name, value in varied.items()}
    return SweepRow(cells, options, 0.5 + number / 10)


RATES = [row(n, optimizer__lr=10.0**-n) for n in range(4)]
TWO = [row(n, net="ab"[n % 2], lr=0.1 * (n // 2)) for n in range(4)]
CASES: Mapping[str, tuple[list[SweepRow], list[str]]] = {
    "devices": ([row(n, devices=n) for n in (4, 2, 1)], ["speed-up"]),
    "nothing on one device": ([row(n, devices=n, timed=False) for n in (1, 2)], []),
    "a rate": (RATES, ["best val/acc over optimizer.lr"]),
    "a rate and a net": (TWO, ["best val/acc over net", "best val/acc over lr"]),
    "nothing": ([row(0), row(1)], []),
}


@pytest.mark.parametrize("case", CASES)
def test_the_panels_follow_what_varies(case: str) -> None:
    rows, expected = CASES[case]
    panels = panels_of(rows, METRIC)
    assert [panel.title for panel in panels] == expected
    assert [panel.title for panel in panels_of(rows, None)] == [name for name in expected if name == "speed-up"]
    for panel in panels:
        axes = Figure().add_subplot()
        panel.draw(axes)
        assert (axes.get_title(), axes.get_xlabel()) == (panel.title, panel.x)
        assert axes.get_xscale() == ("log" if case == "a rate" else "linear")


def test_lines_and_the_best_job() -> None:
    [speed] = panels_of(CASES["devices"][0], METRIC)
    assert speed.lines == {"": [(1, 1.0), (2, 1.9), (4, 3.7)], "ideal": [(1, 1), (4, 4)]}
    [rate] = panels_of(RATES, METRIC)
    assert rate.lines["best"] == [(1e-3, 0.8)]
    net, _ = panels_of(TWO, METRIC)
    assert net.lines == {"lr=0": [("a", 0.5), ("b", 0.6)], "lr=0.1": [("a", 0.7), ("b", 0.8)], "best": [("b", 0.8)]}


def test_a_label_holds_what_varies_alone() -> None:
    rows = [row(0, optimizer__lr=0.1, model__lr=1), row(1, "virtual", 2, optimizer__lr=0.2, model__lr=1)]
    assert label(rows[1], rows) == "virtual×2 optimizer.lr=0.2 model.lr=1"
    assert label(rows[1], rows, without=["devices", "model.lr"]) == "virtual lr=0.2"
    assert label(row(0, path="a" * 30), [row(0)]) == f"path={'a' * 14}…"


@pytest.mark.parametrize(("jobs", "n_steps"), [(2, 3), (25, 3), (1, 1)])
def test_the_curves_of_all_jobs_are_visible(jobs: int, n_steps: int, tmp_path: Path) -> None:
    """Equal curves do not hide each other, and a point has a marker."""
    steps = [{"step": step, "samples": 2, "loss_sum": 4.0 / step} for step in range(1, n_steps + 1)]
    validations = [(float(n_steps), {"val/loss": 1.0, "train/loss": 1.0, "val/acc": 0.5})]
    rows = [SweepRow(row(n).cells, {}, steps=steps, validations=validations) for n in range(jobs)]
    loss, validation = panels_of(rows, METRIC)
    axes = Figure().add_subplot()
    loss.draw(axes)
    widths = [line.get_linewidth() for line in axes.lines]
    assert (widths, len({*widths})) == (sorted(widths, reverse=True), jobs)
    assert {line.get_marker() for line in axes.lines} == ({"o"} if n_steps == 1 else {"None"})
    assert (axes.get_legend() is None) == (jobs in (1, 25))
    assert (validation.title, validation.lines["0"]) == ("val/acc", [(n_steps, 0.5)])
    draw(rows, tmp_path / "plot.png", METRIC)
    assert imread(tmp_path / "plot.png").std() > 0.05
