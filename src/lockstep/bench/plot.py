"""The plot of the bench: ratios beside their goals, and throughput over ranks."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from lockstep.bench.measurement import INCONCLUSIVE, Measurement
from lockstep.plot import saved_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {"yes": "tab:green", "no": "tab:red", INCONCLUSIVE: "tab:orange", "": "tab:blue"}
GOAL: dict[str, Any] = {"marker": "|", "color": "black", "markersize": 16, "markeredgewidth": 2, "linestyle": "none"}
LABELS = {"yes": "goal met", "no": "goal missed", INCONCLUSIVE: INCONCLUSIVE, "": "no goal"}


def draw(rows: Sequence[Measurement], path: Path) -> None:
    """Write a PNG file with a panel for each kind that there is: points with the least and the most of the rounds."""
    ratios = [row for row in rows if row.baseline and row.by == "ratio" and row.ranks is None]
    ranks = [row for row in rows if row.ranks is not None]
    panels = [panel for panel in ((draw_ratios, ratios, 8), (draw_ranks, ranks, 5)) if panel[1]]
    if not panels:
        return
    widths = [width for _, _, width in panels]
    with saved_figure(path, width=sum(widths), height=max(4.0, 1.5 + 0.3 * len(ratios))) as figure:
        axes = figure.subplots(1, len(panels), width_ratios=widths, squeeze=False)[0]
        for one, (draw_panel, shown, _) in zip(axes, panels, strict=True):
            draw_panel(one, shown)


def draw_ratios(axes: "Axes", rows: Sequence[Measurement]) -> None:
    for index, row in enumerate(rows):
        axes.errorbar(row.score, index, xerr=errors(row.compared), fmt="o", color=COLORS[row.goal_met], capsize=3)
        if row.goal is not None:
            axes.plot(row.goal, index, **GOAL)
    for met in dict.fromkeys(row.goal_met for row in rows):
        axes.plot([], [], "o", color=COLORS[met], label=LABELS[met])
    if any(row.goal is not None for row in rows):
        axes.plot([], [], label="goal: at most", **GOAL)
    axes.axvline(1, color="grey", linestyle="--", linewidth=1)
    names = [f"{row.workload}: {row.variant} / {row.baseline}" for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize="small")
    axes.invert_yaxis()
    title, xlabel = "median of the rounds (bars: least and most)", "time / the baseline's time"
    axes.set(title=title, xlabel=xlabel, xlim=(0, None))
    axes.legend(fontsize="small")


def draw_ranks(axes: "Axes", rows: Sequence[Measurement]) -> None:
    """A point for each number of ranks, and the line on which as many ranks are so many times as fast."""
    first = min(rows, key=lambda row: row.ranks or 0)
    alone, most = median(first.values) / (first.ranks or 1), max(row.ranks or 0 for row in rows)
    axes.plot([0, most], [0, alone * most], "--", color="grey", linewidth=1, label="ideal")
    for row in rows:
        drawn = axes.errorbar(row.ranks or 0, median(row.values), errors(row.values), fmt="o", color="C0", capsize=3)
    drawn.set_label("measured (bars: least and most)")
    title = "throughput over ranks of one thread"
    axes.set(title=title, xlabel="ranks", ylabel="samples/s", xlim=(0, None), ylim=(0, None))
    axes.set_xticks([row.ranks or 0 for row in rows])
    axes.legend(fontsize="small", loc="upper left")


def errors(values: Sequence[float]) -> list[list[float]]:
    """Below and above the median, as matplotlib takes them: shape (2, 1)."""
    return [[median(values) - min(values)], [max(values) - median(values)]]
