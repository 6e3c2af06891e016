"""The plot of the bench: ratios beside their goals, and throughput over ranks."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from lockstep.bench.measurement import INCONCLUSIVE, Measurement
from lockstep.plot import saved_figure

COLORS = {"yes": "tab:green", "no": "tab:red", INCONCLUSIVE: "tab:orange", "": "tab:blue"}
LABELS = {"yes": "goal met", "no": "goal missed", INCONCLUSIVE: INCONCLUSIVE, "": "no goal"}


def draw(rows: Sequence[Measurement], path: Path) -> None:
    """Write a PNG file with a panel for each kind that there is: points with the least and the most of the rounds."""
    ratios = [row for row in rows if row.baseline and row.by == "ratio" and row.ranks is None]
    ranks = [row for row in rows if row.ranks is not None]
    with saved_figure(path, width=13, height=max(4.0, 1.5 + 0.3 * len(ratios))) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        for index, row in enumerate(ratios):
            left.errorbar(row.score, index, xerr=errors(row.compared), fmt="o", color=COLORS[row.goal_met], capsize=3)
            if row.goal is not None:
                left.plot(row.goal, index, "k<")
        for met in dict.fromkeys(row.goal_met for row in ratios):
            left.plot([], [], "o", color=COLORS[met], label=LABELS[met])
        left.plot([], [], "k<", label="goal: at most")
        left.axvline(1, color="grey", linestyle="--", linewidth=1)
        names = [f"{row.workload}: {row.variant} / {row.baseline}" for row in ratios]
        left.set_yticks(range(len(ratios)), names, fontsize="small")
        left.invert_yaxis()
        left.set(title="time as a ratio to the baseline, median of the rounds", xlabel="ratio")
        left.legend(fontsize="small")
        for row in ranks:
            right.errorbar(row.ranks or 0, median(row.values), errors(row.values), fmt="o", color="C0", capsize=3)
        right.set(title="throughput over ranks of one thread", xlabel="ranks", ylabel="samples/s", ylim=(0, None))


def errors(values: Sequence[float]) -> list[list[float]]:
    """Below and above the median, as matplotlib takes them: shape (2, 1)."""
    return [[median(values) - min(values)], [max(values) - median(values)]]
