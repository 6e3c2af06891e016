"""The picture of a sweep; what varies decides what is drawn, beside the curves of all jobs."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import ceil, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.config_error import is_number, truncate
from lockstep.schemas.groups import short_keys
from lockstep.sweep.jobs import RankingMetric
from lockstep.sweep.rows import WORLD, SweepRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panel = Callable[["Axes"], None]
Points = Mapping[str, Sequence[tuple[float, float]]]  # a curve of each job: step and value
MAX_LABEL, MAX_CURVES = 40, 24  # characters of a label, and curves in a legend
MAX_TICKS = 12  # values of an axis up to which each has a tick
MAX_SINGLE = 8  # jobs below which a legend names each, if no two belong to one line
MAX_POINTS = 100  # points of a training curve; of more steps, means are shown
COLUMNS = 3


def draw(rows: Sequence[SweepRow], path: Path, metric: RankingMetric | None = None) -> None:
    """Write the picture as a PNG file, if there is anything to draw."""
    finished = [row for row in rows if not row.cells["reason"]]
    curves = curve_panels(finished, metric)
    panels = [*chosen_panels(finished, metric), *curves]
    if not panels:
        return
    columns = 2 if len(panels) == 4 else min(COLUMNS, len(panels))
    lines = ceil(len(panels) / columns)
    with saved_figure(path, width=6.2 * columns, height=4.4 * lines) as figure:
        for number, panel in enumerate(panels, start=1):
            axes = figure.add_subplot(lines, columns, number)
            panel(axes)
        if curves:  # all of them have the same legend: it stands beside the last one
            add_legend(axes)


@contextmanager
def saved_figure(path: Path, width: float, height: float) -> Iterator["Figure"]:
    """Yield a figure of so many inches, drawn without a display; write it to `path` when the block ends."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # the first import logs that it builds a font cache
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    yield figure
    figure.savefig(path, dpi=110)


def chosen_panels(rows: Sequence[SweepRow], metric: RankingMetric | None) -> list[Panel]:
    """Return all panels but the curves."""
    panels: list[Panel] = []
    timed = [row for row in rows if row.speeds]
    if len({row.cells["devices"] for row in timed}) > 1 and any(row.cells["speed_up"] for row in timed):
        panels += [partial(over_devices, rows=timed, column=column) for column in ("speed_up", "efficiency")]
    keys = [key for key in (rows[0].varied if rows else ()) if len({str(row.varied[key]) for row in rows}) > 1]
    keys.sort(key=lambda key: not _is_numeric(key, rows))
    if metric is not None:
        panels += [partial(metric_over, rows=rows, key=key, metric=metric) for key in keys[:3]]
    return panels


def curve_panels(rows: Sequence[SweepRow], metric: RankingMetric | None) -> list[Panel]:
    """Return the panels of the training loss, and of what was validated: the ranked metric, or a loss."""
    jobs = {f"{row.cells['job']}: {label(row, rows)}".removesuffix(": "): row for row in rows if row.steps}
    names = dict.fromkeys(name for row in jobs.values() for _, line in row.validations for name in line)
    ranked = [metric.label.removeprefix("best ")] if metric else []
    validated = [name for name in (*ranked, "val/loss", "val_loss", *names) if name in names and "val" in name]
    panels: list[Panel] = [partial(losses, curves={name: row.steps for name, row in jobs.items()})] if jobs else []
    if validated:
        name = validated[0]
        values = {job: [(step, line.get(name, nan)) for step, line in row.validations] for job, row in jobs.items()}
        panels.append(partial(curves_over_steps, curves=values, title=name, marker="."))
    return panels


def add_legend(axes: "Axes") -> None:
    """Add a legend beside a panel that has several curves, unless there are too many."""
    if 1 < len(axes.lines) <= MAX_CURVES:
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, frameon=False)


def _is_numeric(key: str, rows: Sequence[SweepRow]) -> bool:
    return all(is_number(row.varied[key]) for row in rows)


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
    title = f"{column.replace('_', '-')} over one device (bars: slowest and fastest epoch)"
    axes.set(xlabel="devices", title=title, ylim=(0, None))
    add_legend(axes)


def metric_over(axes: "Axes", rows: Sequence[SweepRow], key: str, metric: RankingMetric) -> None:
    """Plot the metric over an option, with a line for each combination of the others; a star is the best job."""
    lines = defaultdict(list)
    numeric = _is_numeric(key, rows)
    tried: list[Any] = list(dict.fromkeys(row.varied[key] if numeric else str(row.varied[key]) for row in rows))
    for row in rows:
        place = row.varied[key] if numeric else tried.index(str(row.varied[key]))
        lines[label(row, rows, without=[key])].append((place, row.score))
        if row.cells["best"]:
            axes.scatter(place, row.score, marker="*", s=170, color="gold", edgecolor="black", zorder=5)
    for name, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), "o-" if numeric else "o", label=name or None)
    axes.set(xlabel=key, ylabel=metric.label, title=f"{metric.label} over {key}")
    if numeric and min(tried) > 0 and max(tried) > 9 * min(tried):
        axes.set_xscale("log")
    is_searched = numeric and any(float(f"{value:.3g}") != value for value in tried)  # of an interval
    if len(tried) <= MAX_TICKS and not is_searched:
        texts = [f"{value:g}" if numeric else truncate(value, MAX_LABEL // 2) for value in tried]
        long = sum(map(len, texts)) > MAX_LABEL
        axes.set_xticks(tried if numeric else range(len(tried)), texts, rotation=30 if long else 0)
        axes.set_xticks([], minor=True)
    if 1 < len(lines) < max(len(rows), MAX_SINGLE):
        add_legend(axes)


def losses(axes: "Axes", curves: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Plot the training loss of each job, the mean of so many steps that a curve has at most MAX_POINTS."""
    together = max(ceil(len(steps) / MAX_POINTS) for steps in curves.values())
    points = {
        name: [_mean_loss(steps[at : at + together]) for at in range(0, len(steps), together)]
        for name, steps in curves.items()
    }
    of = f", means of {together} steps" if together > 1 else ""
    curves_over_steps(axes, points, f"training loss{of}")
    values = [value for curve in points.values() for _, value in curve]
    if min(values, default=0) > 0 and max(values) > 10 * min(values):
        axes.set_yscale("log", subs=[])
        axes.yaxis.get_major_locator().set_params(subs=(1, 2, 5))  # type: ignore[call-arg]
        axes.yaxis.set_major_formatter("{x:g}")


def _mean_loss(steps: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return the last of the steps, and their mean loss."""
    sums = [nan if step["loss_sum"] is None else step["loss_sum"] for step in steps]
    return steps[-1]["step"], sum(sums) / sum(step["samples"] for step in steps)


def curves_over_steps(axes: "Axes", curves: Points, title: str, marker: str | None = None) -> None:
    """Plot the curves. Earlier ones are wider, so that equal curves are all visible; a single point has a marker."""
    import matplotlib as mpl

    colours = mpl.colormaps["tab10" if len(curves) <= 10 else "turbo"]
    for place, (name, points) in enumerate(curves.items()):
        steps, values = zip(*points, strict=True) if points else ((), ())
        colour, width = colours(place if len(curves) <= 10 else place / len(curves)), 3 - 2 * place / len(curves)
        sign = "o" if len(points) == 1 else marker
        axes.plot(steps, values, marker=sign, linewidth=width, color=colour, alpha=0.75, label=name)
    axes.set(xlabel="optimizer step", title=title)
    axes.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]


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
