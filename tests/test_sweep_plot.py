"""A sweep's picture: the panels follow what varies, and each says what it shows."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from lockstep.plot import saved_figure
from lockstep.sweep import plot
from lockstep.sweep.best import Target
from lockstep.sweep.plot import Panel, chosen_panels, label
from lockstep.sweep.rows import SweepRow

TARGET = Target("val/acc", "max", optimized=False)


def row(number: int, strategy: str = "ddp", devices: int = 1, timed: bool = True, **varied: Any) -> SweepRow:
    """Devices share the work, but for a tenth."""
    speed = 100.0 * (1 + 0.9 * (devices - 1))
    keys = {name.replace("__", "."): value for name, value in varied.items()}
    return SweepRow(
        *(str(number), "raw", strategy, devices),
        samples_per_second=speed,
        speed_up=speed / 100,
        efficiency=speed / 100 / devices,
        speeds=(speed * 0.8, speed * 1.1) if timed else None,
        varied=keys,
        target=0.5 + number / 10,
        best=number == 3,
    )


def names(chosen: Sequence[Panel]) -> list[str]:
    return [panel.func.__name__ for panel in chosen if isinstance(panel, partial)]


OVER: Mapping[str, tuple[list[SweepRow], list[str]]] = {
    "devices": ([row(n, devices=n) for n in (1, 2, 4)], ["over_devices", "over_devices"]),
    "too few epochs": ([row(n, devices=n, timed=False) for n in (1, 2, 4)], []),
    "strategies": ([row(1), row(2, "virtual")], ["speeds"]),
    "a rate": ([row(n, optimizer__lr=10.0**-n) for n in range(4)], ["metric_over"]),
    "a rate and a net": ([row(n, lr=0.1 * (n // 2), net="ab"[n % 2]) for n in range(4)], ["metric_over"]),
    "two numbers": ([row(n, lr=0.1 * (n // 2), width=n % 2) for n in range(4)], ["metric_map"]),
    "nets": ([row(n, model=f"net{n}") for n in range(3)], ["metric_by_job"]),
    "seeds and devices": (
        [row(n, devices=1 + n // 2, seed=n % 2) for n in range(4)],
        ["over_devices", "over_devices", "metric_over"],
    ),
    "nothing": ([row(0), row(1)], []),
}


@pytest.mark.parametrize("what", OVER)
def test_the_panels_follow_what_varies(what: str) -> None:
    rows, wanted = OVER[what]
    chosen = chosen_panels(rows, TARGET)
    assert names(chosen) == wanted
    assert names(chosen_panels(rows, None)) == [name for name in wanted if not name.startswith("metric")]
    figure = Figure()
    for number, panel in enumerate(chosen, start=1):
        axes = figure.add_subplot(1, len(chosen), number)
        panel(axes)
        assert axes.get_title()
        assert axes.get_xlabel()
        if "speed" in names([panel])[0]:
            ends = axes.get_ylim() if axes.get_ylabel() else axes.get_xlim()
            assert min(ends) == 0 if axes.get_ylabel() else ends[0] == 0


def test_speed_ups_have_the_range_of_the_epochs() -> None:
    axes = Figure().add_subplot()
    plot.over_devices(axes, OVER["devices"][0], divided=True)
    [bars] = axes.containers
    low, high = bars[2][0].get_segments()[1][:, 1]
    assert (low, high) == pytest.approx((1.9 / 2 * 0.8, 1.9 / 2 * 1.1))


def test_a_job_is_called_by_what_varies_alone() -> None:
    rows = [row(0, optimizer__lr=0.1, model__lr=1), row(1, "virtual", 2, optimizer__lr=0.2, model__lr=1)]
    assert label(rows[1], rows) == "virtual×2 optimizer.lr=0.2 model.lr=1"
    assert label(rows[1], rows, without=["devices", "model.lr"]) == "virtual lr=0.2"
    assert label(rows[0], rows[:1], without=["optimizer.lr", "model.lr"]) == ""
    assert label(row(0, path="a" * 30), [row(0)]) == f"path={'a' * 23}…"


def test_rates_over_decades_stand_on_a_logarithmic_axis_and_the_best_is_marked() -> None:
    axes = Figure().add_subplot()
    plot.metric_over(axes, OVER["a rate"][0], "optimizer.lr", TARGET)
    assert axes.get_xscale() == "log"
    [star] = axes.collections
    assert star.get_offsets().tolist() == [[1e-3, 0.8]]  # type: ignore[union-attr]
    assert axes.get_legend_handles_labels()[1] == ["best"]


@pytest.mark.parametrize("jobs", [2, 13])
def test_each_loss_curve_can_be_told(jobs: int, tmp_path: Path) -> None:
    """By a legend; of many jobs by the colours of a number that varies. Equal curves do not hide each other."""
    rows = [row(number, lr=0.1 * (number + 1)) for number in range(jobs)]
    steps = [[{"step": step, "samples": 2, "loss_sum": 4.0 / step} for step in (1, 2, 3)]] * jobs
    with saved_figure(tmp_path / "plot.png", width=5, height=4) as figure:
        axes = figure.add_subplot()
        plot.losses(axes, rows, steps)
    widths = [line.get_linewidth() for line in axes.lines]
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == jobs
    legend = axes.get_legend()
    if jobs == 2:
        assert legend is not None
        assert [text.get_text() for text in legend.get_texts()] == ["0: lr=0.1", "1: lr=0.2"]
    else:
        assert legend is None
    assert imread(tmp_path / "plot.png").std() > 0.05


@pytest.mark.parametrize("steps", [1, 2])
def test_a_curve_of_one_step_is_a_point(steps: int, tmp_path: Path) -> None:
    lines = [{"step": step, "samples": 2, "loss_sum": 4.0} for step in range(steps)]
    with saved_figure(tmp_path / "plot.png", width=5, height=4) as figure:
        plot.losses(axes := figure.add_subplot(), [row(0)], [lines])
    assert (axes.lines[0].get_marker() == "o") == (steps == 1)
