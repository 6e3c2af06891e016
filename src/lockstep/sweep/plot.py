"""The picture of a sweep: what is drawn follows what varies.

Devices, a strategy or an engine: speed-up and efficiency, of runs whose epochs repeat enough to tell. A number: the
metric over it; two: a map. Always the loss of all jobs.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.config_error import is_number, truncate
from lockstep.plot import saved_figure
from lockstep.schemas.keys import short_keys
from lockstep.sweep.best import Target
from lockstep.sweep.jobs import SweepJob
from lockstep.sweep.rows import SweepRow, worlds_differ

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Panel = Callable[["Axes"], None]
PANEL_WIDTH, PANEL_HEIGHT = 5.8, 4.6
"""Inches."""
LONGEST_VALUE, LONGEST_NAME, MOST_NAMED = 24, 60, 12
"""Characters of a value and of a name, and curves that a legend can name."""
WIDE = 9.9
"""From this ratio of the largest value to the smallest on, values stand on a logarithmic axis."""
STAR: dict[str, Any] = {"marker": "*", "s": 170, "color": "gold", "edgecolors": "black", "zorder": 5, "label": "best"}


def draw(rows: Sequence[SweepRow], jobs: Sequence[SweepJob], path: Path, target: Target | None = None) -> None:
    """Write the picture, as a PNG file."""
    finished = [(row, job) for row, job in zip(rows, jobs, strict=True) if job.results]
    panels = chosen_panels([row for row, _ in finished], target)
    if recorded := [(row, job.steps) for row, job in finished if job.steps]:
        panels.append(partial(losses, rows=[row for row, _ in recorded], steps=[steps for _, steps in recorded]))
    if not panels:
        return
    with saved_figure(path, width=PANEL_WIDTH * len(panels), height=PANEL_HEIGHT) as figure:
        for number, panel in enumerate(panels, start=1):
            panel(figure.add_subplot(1, len(panels), number))


def chosen_panels(rows: Sequence[SweepRow], target: Target | None) -> list[Panel]:
    """Return all panels but the losses."""
    panels: list[Panel] = []
    timed = [row for row in rows if row.speeds is not None]
    if worlds_differ(timed):
        if len({row.devices for row in timed}) > 1 and any(row.speed_up is not None for row in timed):
            panels += [partial(over_devices, rows=timed, divided=divided) for divided in (False, True)]
        else:
            panels.append(partial(speeds, rows=timed))
    valued = [row for row in rows if row.target is not None]
    varied = valued[0].varied if valued else ()
    numbers = [key for key in varied if all(is_number(row.varied[key]) for row in valued)]
    if target is None or all(len({str(row.varied[key]) for row in valued}) < 2 for key in varied):
        return panels
    if len(numbers) == 2 and len(valued) > 3:
        return [*panels, partial(metric_map, rows=valued, keys=numbers, target=target)]
    over = [partial(metric_over, rows=valued, key=key, target=target) for key in numbers[:3]]
    return [*panels, *(over or [partial(metric_by_job, rows=valued, target=target)])]


def over_devices(axes: "Axes", rows: Sequence[SweepRow], divided: bool) -> None:
    """Plot the speed against the run on one device, with the range of the epochs; or `divided` by the devices."""
    most = max(row.devices for row in rows)
    axes.plot([1, most], [1, 1 if divided else most], "--", color="grey", label="ideal")
    lines = defaultdict(list)
    for row in rows:
        if row.speed_up is not None and row.samples_per_second:
            lines[label(row, rows, without=["devices"])].append(row)
    for name, line in lines.items():
        line.sort(key=lambda row: row.devices)
        scales = [
            (row.speed_up or 0.0) / (row.samples_per_second or 1.0) / (row.devices if divided else 1) for row in line
        ]
        middle, errors = _bars(line, scales)
        devices = [row.devices for row in line]
        axes.errorbar(devices, middle, yerr=errors, fmt="o-", capsize=4, label=name or "this sweep")
    axes.set_xticks(sorted({row.devices for row in rows}))
    ylabel, title = "speed-up (×)", "samples per second against one device"
    if divided:
        ylabel, title = "speed-up / devices", "efficiency (bars: slowest and fastest epoch)"
    axes.set(xlabel="devices", ylabel=ylabel, title=title, ylim=(0, None))
    axes.legend(fontsize="small")


def speeds(axes: "Axes", rows: Sequence[SweepRow]) -> None:
    """Plot samples per second, where all have as many devices, or none had one."""
    middle, errors = _bars(rows, [1.0] * len(rows))
    axes.barh(range(len(rows)), middle, xerr=errors, capsize=4, color="tab:blue", alpha=0.8)
    axes.set_yticks(range(len(rows)), [label(row, rows) for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="samples per second", title="speed (bars: slowest and fastest epoch)", xlim=(0, None))


def _bars(rows: Sequence[SweepRow], scales: Sequence[float]) -> tuple[list[float], list[list[float]]]:
    """Return the scaled speeds, and how far the slowest and the fastest epoch are from them."""
    middle, below, above = [], [], []
    for row, scale in zip(rows, scales, strict=True):
        speed = row.samples_per_second or 0.0
        low, high = row.speeds or (speed, speed)
        middle.append(scale * speed)
        below.append(scale * max(0.0, speed - low))
        above.append(scale * max(0.0, high - speed))
    return middle, [below, above]


def metric_over(axes: "Axes", rows: Sequence[SweepRow], key: str, target: Target) -> None:
    """Plot the metric over a number, a line for each combination of what else varies."""
    lines = defaultdict(list)
    for row in rows:
        point = row.varied[key], nan if row.target is None else row.target
        lines[label(row, rows, without=[key])].append(point)
        if row.best:
            axes.scatter(*point, **STAR)
    for name, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), "o-", label=name or None)
    axes.set(xlabel=key, ylabel=target.label, title=f"{target.label} over {key}")
    if _is_wide([row.varied[key] for row in rows]):
        axes.set_xscale("log")
    if axes.get_legend_handles_labels()[1] and len(lines) <= MOST_NAMED:
        axes.legend(fontsize="small")


def metric_by_job(axes: "Axes", rows: Sequence[SweepRow], target: Target) -> None:
    """Plot the metric of each job, where nothing that varies is a number."""
    for place, row in enumerate(rows):
        axes.scatter(
            [nan if row.target is None else row.target], [place], **(STAR if row.best else {"color": "tab:blue"})
        )
    axes.set_yticks(range(len(rows)), [label(row, rows) for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel=target.label, title=f"{target.label} by job")


def metric_map(axes: "Axes", rows: Sequence[SweepRow], keys: Sequence[str], target: Target) -> None:
    """Plot each job where its two numbers are, in the colour of its metric."""
    across, up = ([row.varied[key] for row in rows] for key in keys)
    values = [nan if row.target is None else row.target for row in rows]
    points = axes.scatter(across, up, c=values, s=260, cmap="viridis", edgecolors="grey")
    for x, y, value, row in zip(across, up, values, rows, strict=True):
        axes.annotate(f"{value:.3g}", (x, y), (0, 13), textcoords="offset points", ha="center", fontsize="small")
        if row.best:
            axes.scatter([x], [y], **STAR)
            axes.legend(loc="upper left", fontsize="small")
    axes.set_xscale("log" if _is_wide(across) else "linear")
    axes.set_yscale("log" if _is_wide(up) else "linear")
    axes.margins(0.15)
    axes.figure.colorbar(points, ax=axes, label=target.label)
    axes.set(xlabel=keys[0], ylabel=keys[1], title=f"{target.label}")


def losses(axes: "Axes", rows: Sequence[SweepRow], steps: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """Plot the loss of each job's global batches; earlier curves are wider, so that equal curves are all seen."""
    widest = min(4.0, float(len(rows)))
    for place, (row, lines) in enumerate(zip(rows, steps, strict=True)):
        values = [nan if line["loss_sum"] is None else line["loss_sum"] / line["samples"] for line in lines]
        width = widest - (widest - 1.0) * place / max(1, len(rows) - 1)
        name = f"{row.job}: {label(row, rows)}".rstrip(": ") + (" (best)" if row.best else "")
        numbers, point = [line["step"] for line in lines], "o" if len(values) == 1 else None
        axes.plot(numbers, values, marker=point, linewidth=width, alpha=0.75, label=name)
        if any(value <= 0 for value in values):
            axes.set_yscale("linear")
        elif place == 0:
            axes.set_yscale("log")
    axes.set(xlabel="optimizer step", ylabel="training loss of the global batch", title="loss of every job")
    if len(rows) <= MOST_NAMED:
        axes.legend(fontsize="small")


def label(row: SweepRow, rows: Sequence[SweepRow], without: Sequence[str] = ()) -> str:
    """Return `ddp×2 lr=0.01`: what varies among the rows beside `without` (keys, or `devices`)."""
    differs = {name: len({getattr(other, name) for other in rows}) > 1 for name in ("engine", "strategy", "devices")}
    strategy = row.strategy if differs["strategy"] else ""
    if differs["devices"] and "devices" not in without:
        strategy = f"{row.strategy}×{row.devices}"
    values = short_keys({key: value for key, value in row.varied.items() if key not in without})
    shown = {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in values.items()}
    varied = [f"{key}={truncate(value, LONGEST_VALUE)}" for key, value in shown.items()]
    return truncate(" ".join(filter(None, [row.engine if differs["engine"] else "", strategy, *varied])), LONGEST_NAME)


def _is_wide(values: Sequence[Any]) -> bool:
    return bool(min(values) > 0 and max(values) / min(values) >= WIDE)
