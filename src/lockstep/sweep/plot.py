"""The plot over a sweep: speed-up against devices beside the ideal line, and the loss curves of all jobs."""

from collections import defaultdict
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.plot import saved_figure
from lockstep.sweep.jobs import SweepJob
from lockstep.sweep.rows import SweepRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(rows: Sequence[SweepRow], jobs: Sequence[SweepJob], path: Path) -> None:
    """Write the plot, as a PNG file."""
    with saved_figure(path, width=12, height=4.5) as figure:
        speed, loss = figure.subplots(1, 2)
        _speed_ups(speed, rows)
        _losses(loss, rows, jobs)


def _speed_ups(axes: "Axes", rows: Sequence[SweepRow]) -> None:
    lines = defaultdict(list)
    for row in rows:
        if row.speed_up is not None:
            lines[row.label].append((row.devices, row.speed_up))
    most = max((devices for points in lines.values() for devices, _ in points), default=1)
    axes.plot([1, most], [1, most], "--", color="grey", label="ideal")
    for name, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), "o-", label=name)
    axes.set(xlabel="devices", ylabel="speed-up", title="samples per second against one device", ylim=(0, None))
    axes.set_xticks(range(1, most + 1))
    axes.legend()


def _losses(axes: "Axes", rows: Sequence[SweepRow], jobs: Sequence[SweepJob]) -> None:
    for row, job in zip(rows, jobs, strict=True):
        if steps := job.steps:
            losses = [nan if line["loss_sum"] is None else line["loss_sum"] / line["samples"] for line in steps]
            name = f"{row.job}: {row.label} × {row.devices}"
            axes.plot([line["step"] for line in steps], losses, linewidth=1, alpha=0.7, label=name)
    axes.set(xlabel="optimizer step", ylabel="loss of the global batch", title="loss", yscale="log")
    if axes.lines:
        axes.legend(fontsize="small")
