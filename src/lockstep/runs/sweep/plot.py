"""The picture of a sweep; what varies decides what is drawn, beside the curves of all jobs."""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.base.config_error import is_number, shorten, truncate
from lockstep.plan.schemas.groups import short_keys
from lockstep.runs.sweep.jobs import WORLD, RankingMetric, SweepRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Panel = Callable[["Axes"], None]
MAX_LABEL, MAX_CURVES = 40, 24  # characters of a label, and curves in a legend
MAX_POINTS = 100  # points of a training curve; of more steps, means are shown
COLUMNS = 3


def draw(rows: Sequence[SweepRow], path: Path, metric: RankingMetric | None = None) -> None:
    """Write the picture as a PNG file, without a display, if there is anything to draw."""
    finished = [row for row in rows if not row.cells["reason"]]
    curves = curve_panels(finished, metric)
    panels = [*chosen_panels(finished, metric), *curves]
    if not panels:
        return
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # the first import logs that it builds a font cache
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(panels))
    lines = ceil(len(panels) / columns)
    figure = Figure(figsize=(6.2 * columns, 4.4 * lines), layout="constrained")
    for number, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(lines, columns, number)
        panel(axes)
    if curves:  # all of them have the same legend: it stands beside the last one
        add_legend(axes)
    figure.savefig(path, dpi=110)


def chosen_panels(rows: Sequence[SweepRow], metric: RankingMetric | None) -> list[Panel]:
    """Return all panels but the curves."""
    panels: list[Panel] = []
    compared = [row for row in rows if row.cells["speed_up"]]
    if len({row.cells["devices"] for row in compared}) > 1:
        panels += [partial(over_devices, rows=compared, column=column) for column in ("speed_up", "efficiency")]
    keys = [key for key in (rows[0].varied if rows else ()) if len({str(row.varied[key]) for row in rows}) > 1]
    keys.sort(key=lambda key: not _is_numeric(key, rows))
    if metric is not None:
        panels += [partial(metric_over, rows=rows, key=key, metric=metric) for key in keys[:3]]
    return panels


def curve_panels(rows: Sequence[SweepRow], metric: RankingMetric | None) -> list[Panel]:
    """Return the panels of the training loss, and of what was validated: the ranked metric, or a loss."""
    jobs = {f"{row.cells['job']}: {label(row, rows)}".removesuffix(": "): row for row in rows if row.steps}
    if not jobs:
        return []
    together = max(ceil(len(row.steps) / MAX_POINTS) for row in jobs.values())
    title = f"training loss, means of {together} steps" if together > 1 else "training loss"
    curves = {name: mean_losses(row.steps, together) for name, row in jobs.items()}
    panels: list[Panel] = [partial(curves_over_steps, curves=curves, title=title)]
    names = dict.fromkeys(name for row in jobs.values() for _, line in row.validations for name in line)
    ranked = [metric.label.removeprefix("best ")] if metric else []
    validated = [name for name in (*ranked, "val/loss", "val_loss", *names) if name in names and "val" in name]
    if validated:
        name = validated[0]
        values = {job: [(step, line.get(name, nan)) for step, line in row.validations] for job, row in jobs.items()}
        panels.append(partial(curves_over_steps, curves=values, title=name, marker="."))
    return panels


def mean_losses(steps: Sequence[Mapping[str, Any]], together: int) -> list[tuple[float, float]]:
    """Return the mean loss of so many steps at a time, each with the last of them."""
    points = []
    for start in range(0, len(steps), together):
        window = steps[start : start + together]
        total = sum(nan if step["loss_sum"] is None else step["loss_sum"] for step in window)
        points.append((window[-1]["step"], total / sum(step["samples"] for step in window)))
    return points


def add_legend(axes: "Axes") -> None:
    """Add a legend beside a panel that has several curves, unless there are too many."""
    if 1 < len(axes.lines) <= MAX_CURVES:
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, frameon=False)


def _is_numeric(key: str, rows: Sequence[SweepRow]) -> bool:
    return all(is_number(row.varied[key]) for row in rows)


def over_devices(axes: "Axes", rows: Sequence[SweepRow], column: str) -> None:
    """Plot the speed-up or the efficiency."""
    lines = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.cells["devices"]):
        lines[label(row, rows, without=["devices"])].append((row.cells["devices"], row.cells[column]))
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), "o-", label=name or "this sweep")
    devices = sorted({row.cells["devices"] for row in rows})
    axes.plot([1, devices[-1]], [1, 1 if column == "efficiency" else devices[-1]], "--", color="grey", label="ideal")
    axes.set_xticks(devices)
    axes.set(xlabel="devices", title=f"{column.replace('_', '-')} over one device", ylim=(0, None))
    add_legend(axes)


def metric_over(axes: "Axes", rows: Sequence[SweepRow], key: str, metric: RankingMetric) -> None:
    """Plot the metric over an option, with a line for each combination of the others; a star is the best job."""
    lines = defaultdict(list)
    numeric = _is_numeric(key, rows)
    places: list[Any] = [row.varied[key] if numeric else shorten(str(row.varied[key]), MAX_LABEL // 2) for row in rows]
    for place, row in zip(places, rows, strict=True):
        lines[label(row, rows, without=[key])].append((place, row.score))
    for name, points in lines.items():
        axes.plot(
            *zip(*(sorted(points) if numeric else points), strict=True), "o-" if numeric else "o", label=name or None
        )
    for place, row in zip(places, rows, strict=True):
        if row.cells["best"]:
            axes.scatter(place, row.score, marker="*", s=170, color="gold", edgecolor="black", zorder=5)
    if numeric and min(places) > 0 and max(places) > 9 * min(places):
        axes.set_xscale("log")
    axes.set(xlabel=key, ylabel=metric.label, title=f"{metric.label} over {key}")
    add_legend(axes)


def curves_over_steps(
    axes: "Axes", curves: Mapping[str, Sequence[tuple[float, float]]], title: str, marker: str | None = None
) -> None:
    """Plot the curves. Earlier ones are wider, so that equal curves are all visible; a single point has a marker."""
    import matplotlib as mpl

    colours = mpl.colormaps["turbo"].resampled(len(curves))
    for place, (name, points) in enumerate(curves.items()):
        steps, values = zip(*points, strict=True) if points else ((), ())
        width, sign = 3 - 2 * place / len(curves), "o" if len(points) == 1 else marker
        axes.plot(steps, values, marker=sign, linewidth=width, color=colours(place), alpha=0.75, label=name)
    heights = [value for points in curves.values() for _, value in points]
    if min(heights, default=0) > 0 and max(heights) > 10 * min(heights):
        axes.set_yscale("log")
    axes.set(xlabel="optimizer step", title=title)


def label(row: SweepRow, rows: Sequence[SweepRow], without: Sequence[str] = ()) -> str:
    """Return `ddp×2 lr=0.01`: what varies among the rows, but for the keys in `without`."""
    engine, strategy, devices = (len({other.cells[name] for other in rows}) > 1 for name in WORLD)
    words = [row.cells["engine"]] if engine else []
    if devices and "devices" not in without:
        words.append(f"{row.cells['strategy']}×{row.cells['devices']}")
    elif strategy:
        words.append(row.cells["strategy"])
    varied = short_keys({key: value for key, value in row.varied.items() if key not in without})
    texts = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in varied.items()}
    words += [truncate(f"{key}={text}", MAX_LABEL // 2) for key, text in texts.items()]
    return truncate(" ".join(words), MAX_LABEL)
