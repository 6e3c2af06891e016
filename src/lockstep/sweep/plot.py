"""The picture of a sweep; what varies decides what is drawn, beside the loss of all jobs."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.config_error import is_number, truncate
from lockstep.plot import saved_figure
from lockstep.schemas.keys import short_keys
from lockstep.sweep.jobs import RankingMetric
from lockstep.sweep.rows import WORLD, SweepRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Panel = Callable[["Axes"], None]
MAX_LABEL, MAX_CURVES = 60, 12
"""Characters of a label, and curves in a legend."""


def draw(rows: Sequence[SweepRow], path: Path, metric: RankingMetric | None = None) -> None:
    """Write the picture as a PNG file, if there is anything to draw."""
    panels = chosen_panels([row for row in rows if not row.cells["reason"]], metric)
    curves = {f"{row.cells['job']}: {label(row, rows)}": row.steps for row in rows if row.steps}
    if curves:
        panels.append(partial(losses, curves=curves))
    if not panels:
        return
    with saved_figure(path, width=5.8 * len(panels), height=4.6) as figure:
        for number, panel in enumerate(panels, start=1):
            panel(figure.add_subplot(1, len(panels), number))


def chosen_panels(rows: Sequence[SweepRow], metric: RankingMetric | None) -> list[Panel]:
    """Return all panels but the losses."""
    panels: list[Panel] = []
    timed = [row for row in rows if row.speeds]
    if len({row.cells["devices"] for row in timed}) > 1 and any(row.cells["speed_up"] for row in timed):
        panels += [partial(over_devices, rows=timed, column=column) for column in ("speed_up", "efficiency")]
    keys = [key for key in (rows[0].varied if rows else ()) if len({str(row.varied[key]) for row in rows}) > 1]
    numbers = [key for key in keys if all(is_number(row.varied[key]) for row in rows)]
    if metric is not None:
        panels += [partial(metric_over, rows=rows, key=key, metric=metric) for key in numbers[:3]]
    return panels


def over_devices(axes: "Axes", rows: Sequence[SweepRow], column: str) -> None:
    """Plot the speed-up or the efficiency, with the range of the epochs."""
    lines = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.cells["devices"]):
        if value := row.cells[column]:
            scaled = (value * speed / row.cells["samples_per_second"] for speed in row.speeds)
            lines[label(row, rows, without=["devices"])].append((row.cells["devices"], value, *scaled))
    for name, points in lines.items():
        devices, values, slowest, fastest = zip(*points, strict=True)
        [line] = axes.plot(devices, values, "o-", label=name or "this sweep")
        axes.vlines(devices, slowest, fastest, color=line.get_color())
    most = max(row.cells["devices"] for row in rows)
    axes.plot([1, most], [1, 1 if column == "efficiency" else most], "--", color="grey", label="ideal")
    axes.set_xticks(sorted({row.cells["devices"] for row in rows}))
    axes.set(
        xlabel="devices",
        title=f"{column.replace('_', '-')} over one device (bars: slowest and fastest epoch)",
        ylim=(0, None),
    )
    axes.legend(fontsize="small")


def metric_over(axes: "Axes", rows: Sequence[SweepRow], key: str, metric: RankingMetric) -> None:
    """Plot the metric over a number, with a line for each combination of the other options."""
    lines = defaultdict(list)
    for row in rows:
        lines[label(row, rows, without=[key])].append((row.varied[key], row.score))
        if row.cells["best"]:
            axes.scatter(row.varied[key], row.score, marker="*", s=170, color="gold", zorder=5, label="best")
    for name, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), "o-", label=name or None)
    axes.set(xlabel=key, ylabel=metric.label, title=f"{metric.label} over {key}")
    values = [row.varied[key] for row in rows]
    axes.set_xscale("log" if min(values) > 0 and max(values) > 9 * min(values) else "linear")
    if axes.get_legend_handles_labels()[1] and len(lines) <= MAX_CURVES:
        axes.legend(fontsize="small")


def losses(axes: "Axes", curves: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Plot the loss of each job's global batches. Earlier curves are wider, so that equal curves are all visible."""
    for place, (name, steps) in enumerate(curves.items()):
        values = [nan if step["loss_sum"] is None else step["loss_sum"] / step["samples"] for step in steps]
        marker, width = "o" if len(values) == 1 else None, 1 + 3 * (1 - place / len(curves))
        axes.plot([step["step"] for step in steps], values, marker=marker, linewidth=width, alpha=0.75, label=name)
    axes.set(xlabel="optimizer step", ylabel="training loss of the global batch", title="loss of every job")
    sums = [step["loss_sum"] for steps in curves.values() for step in steps if step["loss_sum"] is not None]
    axes.set_yscale("log" if min(sums, default=0) > 0 else "linear")
    if len(curves) <= MAX_CURVES:
        axes.legend(fontsize="small")


def label(row: SweepRow, rows: Sequence[SweepRow], without: Sequence[str] = ()) -> str:
    """Return `ddp×2 lr=0.01`: what varies among the rows, but for the keys in `without`."""
    engine, strategy, devices = (len({other.cells[name] for other in rows}) > 1 for name in WORLD)
    words = [row.cells["engine"]] if engine else []
    if devices and "devices" not in without:
        words.append(f"{row.cells['strategy']}×{row.cells['devices']}")
    elif strategy:
        words.append(row.cells["strategy"])
    varied = short_keys({key: value for key, value in row.varied.items() if key not in without})
    words += [truncate(f"{key}={value}", MAX_LABEL // 2) for key, value in varied.items()]
    return truncate(" ".join(words), MAX_LABEL)
