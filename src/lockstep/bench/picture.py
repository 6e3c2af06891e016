"""The picture of the bench: ratios beside their goals, and how cost grows with samples and with ranks."""

import logging
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from lockstep.bench.growth import OVER_RANKS, OVER_SAMPLES
from lockstep.bench.row import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write the picture, as a PNG file."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # its first import tells of building a font cache
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ratios = [row for row in rows if row.against and row.by == "ratio"]
    figure = Figure(figsize=(14, max(5.0, 1.5 + 0.3 * len(ratios))), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, width_ratios=(3, 2))
    _ratios(figure.add_subplot(grid[:, 0]), ratios)
    samples = figure.add_subplot(grid[0, 1])
    _curve(samples, [row for row in rows if row.workload == OVER_SAMPLES])
    samples.set(
        title="cost over samples", xlabel="samples", ylabel="ms per 1,000 samples", xscale="log", ylim=(0, None)
    )
    ranks = figure.add_subplot(grid[1, 1])
    _curve(ranks, [row for row in rows if row.workload == OVER_RANKS])
    ranks.set(title="throughput over ranks", xlabel="ranks", ylabel="samples/s", ylim=(0, None))
    figure.savefig(path, dpi=110)


def _ratios(axes: "Axes", rows: Sequence[Row]) -> None:
    """A bar for each median, with its spread, and a mark at the goal."""
    names = [f"{row.workload}: {row.way} / {row.against}" for row in rows]
    for place, row in enumerate(rows):
        middle, low, high = median(row.compared), min(row.compared), max(row.compared)
        colour = {True: "tab:green", False: "tab:red", None: "tab:blue"}[row.holds]
        axes.barh(place, middle, color=colour, xerr=[[middle - low], [high - middle]], ecolor="black", capsize=2)
        if row.goal is not None:
            axes.plot([row.goal.limit] * 2, [place - 0.45, place + 0.45], color="black", linewidth=2)
    axes.set_yticks(range(len(rows)), names, fontsize="small")
    axes.invert_yaxis()
    axes.axvline(1, color="grey", linestyle="--", linewidth=1)
    axes.set(title="ratio to the yardstick; the goal is the black mark", xscale="log" if rows else "linear")


def _curve(axes: "Axes", rows: Sequence[Row]) -> None:
    if rows:
        middle = [median(row.values) for row in rows]
        spread = [
            [own - min(row.values) for own, row in zip(middle, rows, strict=True)],
            [max(row.values) - own for own, row in zip(middle, rows, strict=True)],
        ]
        axes.errorbar([row.size or 0 for row in rows], middle, spread, fmt="o-", capsize=3)
