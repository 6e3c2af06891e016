"""The plot of the bench: ratios beside their goals."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from lockstep.bench.measurement import INCONCLUSIVE, Measurement
from lockstep.plot import saved_figure

COLORS = {"yes": "tab:green", "no": "tab:red", INCONCLUSIVE: "tab:orange", "": "tab:blue"}
GOAL: dict[str, Any] = {"marker": "|", "color": "black", "markersize": 16, "markeredgewidth": 2, "linestyle": "none"}
LABELS = {"yes": "goal met", "no": "goal missed", INCONCLUSIVE: INCONCLUSIVE, "": "no goal"}


def draw(measurements: Sequence[Measurement], path: Path) -> None:
    """Write a PNG file of the ratios of seconds, if there are any: the medians, with the least and the most."""
    rows = [row for row in measurements if row.baseline and row.by == "ratio" and row.unit == "s"]
    if not rows:
        return
    with saved_figure(path, width=8, height=max(4.0, 1.5 + 0.3 * len(rows))) as figure:
        axes = figure.subplots()
        for index, row in enumerate(rows):
            errors = [[row.score - min(row.compared)], [max(row.compared) - row.score]]
            axes.errorbar(median(row.compared), index, xerr=errors, fmt="o", color=COLORS[row.goal_met], capsize=3)
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
