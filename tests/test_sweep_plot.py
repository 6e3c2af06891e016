"""A sweep's picture: the panels follow what varies, and each says what it shows."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from lockstep.runs.sweep import plot
from lockstep.runs.sweep.jobs import RankingMetric, SweepRow
from lockstep.runs.sweep.plot import Panel, chosen_panels, label

METRIC = RankingMetric("best", "best val/acc", "max")


def row(number: int, strategy: str = "ddp", devices: int = 1, timed: bool = True, **varied: Any) -> SweepRow:
    """Return a job whose devices share nine tenths of the work."""
    speed = 100.0 * (1 + 0.9 * (devices - 1))
    cells = {"engine": "raw", "strategy": strategy, "devices": devices, "best": "*" if number == 3 else ""}
    cells |= {"speed_up": speed / 100 if timed else None, "efficiency": speed / 100 / devices}
    options = {name.replace("__", "."): value for name, value in varied.items()}
    return SweepRow(cells, options, 0.5 + number / 10)


def names(panels: Sequence[Panel]) -> list[str]:
    return [panel.func.__name__ for panel in panels if isinstance(panel, partial)]


CASES: Mapping[str, tuple[list[SweepRow], list[str]]] = {
    "devices": ([row(n, devices=n) for n in (1, 2, 4)], ["over_devices", "over_devices"]),
    "nothing on one device": ([row(n, devices=n, timed=False) for n in (1, 2, 4)], []),
    "strategies": ([row(1), row(2, "virtual")], []),
    "a rate": ([row(n, optimizer__lr=10.0**-n) for n in range(4)], ["metric_over"]),
    "a rate and a net": (
        [row(n, net="ab"[n % 2], lr=0.1 * (n // 2)) for n in range(4)],
        ["metric_over", "metric_over"],
    ),
    "two numbers": ([row(n, lr=0.1 * (n // 2), width=n % 2) for n in range(4)], ["metric_over", "metric_over"]),
    "nets": ([row(n, model=f"net{n}") for n in range(3)], ["metric_over"]),
    "seeds and devices": (
        [row(n, devices=1 + n // 2, seed=n % 2) for n in range(4)],
        ["over_devices", "over_devices", "metric_over"],
    ),
    "nothing": ([row(0), row(1)], []),
}


@pytest.mark.parametrize("case", CASES)
def test_the_panels_follow_what_varies(case: str) -> None:
    rows, expected = CASES[case]
    panels = chosen_panels(rows, METRIC)
    assert names(panels) == expected
    assert names(chosen_panels(rows, None)) == [name for name in expected if not name.startswith("metric")]
    figure = Figure()
    for number, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), number)
        panel(axes)
        assert axes.get_title()
        assert axes.get_xlabel()
        if names([panel]) == ["over_devices"]:
            assert axes.get_ylim()[0] == 0


def test_a_label_holds_what_varies_alone() -> None:
    rows = [row(0, optimizer__lr=0.1, model__lr=1), row(1, "virtual", 2, optimizer__lr=0.2, model__lr=1)]
    assert label(rows[1], rows) == "virtual×2 optimizer.lr=0.2 model.lr=1"
    assert label(rows[1], rows, without=["devices", "model.lr"]) == "virtual lr=0.2"
    assert label(rows[0], rows[:1], without=["optimizer.lr", "model.lr"]) == ""
    assert label(row(0, path="a" * 30), [row(0)]) == f"path={'a' * 14}…"


def test_the_best_has_a_star() -> None:
    axes = Figure().add_subplot()
    plot.metric_over(axes, CASES["a rate"][0], "optimizer.lr", METRIC)
    assert axes.get_xscale() == "log"
    [star] = axes.collections
    assert star.get_offsets().tolist() == [[1e-3, 0.8]]  # type: ignore[union-attr]
    assert axes.get_legend() is None, "one line needs none"
    axes = Figure().add_subplot()
    rows = CASES["a rate and a net"][0]
    plot.metric_over(axes, rows, "net", METRIC)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["lr=0", "lr=0.1"]  # type: ignore[union-attr]


@pytest.mark.parametrize(("jobs", "n_steps"), [(2, 3), (25, 3), (1, 1), (2, 150)])
def test_the_curves_of_all_jobs_are_visible(jobs: int, n_steps: int, tmp_path: Path) -> None:
    """Equal curves do not hide each other, a point has a marker, and the legend is beside the axes."""
    steps = [{"step": step, "samples": 2, "loss_sum": 4.0 / step} for step in range(1, n_steps + 1)]
    validations = [(float(n_steps), {"val/loss": 1.0, "train/loss": 1.0, "val/acc": 0.5})]
    cells = {"reason": "", "engine": "raw", "strategy": "ddp", "devices": 1, "speed_up": None}
    rows = [SweepRow({"job": n, **cells}, {}, steps=steps, validations=validations) for n in range(jobs)]
    panels = plot.curve_panels(rows, METRIC)
    assert not plot.curve_panels([], METRIC)
    figure = Figure(figsize=(10, 4), layout="constrained")
    loss, validation = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    for panel, axes in zip(panels, (loss, validation), strict=True):
        panel(axes)
    plot.add_legend(validation)
    figure.draw_without_rendering()
    for axes in (loss, validation):
        widths = [line.get_linewidth() for line in axes.lines]
        assert widths == sorted(widths, reverse=True)
        assert len(set(widths)) == jobs
    assert loss.get_title() == ("training loss, means of 2 steps" if n_steps == 150 else "training loss")
    assert len(loss.lines[0].get_xdata()) == (75 if n_steps == 150 else n_steps)  # type: ignore[arg-type]
    assert {line.get_marker() for line in loss.lines} == ({"o"} if n_steps == 1 else {"None"})
    assert (validation.get_title(), validation.lines[0].get_marker()) == ("val/acc", "o")
    assert (validation.get_legend() is None) == (jobs in (1, 25))
    if jobs == 2:
        box = validation.get_legend().get_window_extent()  # type: ignore[union-attr]
        assert box.x0 >= validation.get_window_extent().x1
    plot.draw(rows, tmp_path / "plot.png", METRIC)
    assert imread(tmp_path / "plot.png").std() > 0.05
