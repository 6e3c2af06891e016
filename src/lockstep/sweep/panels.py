"""The panels of a sweep's picture, each of which says what its axes and its lines are."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import isnan, nan
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from lockstep.sweep.best import Target
from lockstep.sweep.labels import label, numbers_of
from lockstep.sweep.rows import SweepRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMED = 12
"""Curves that a legend can name."""
LINE, LEGEND_INCHES, LINE_INCHES = 32, 2.8, 0.19
"""Characters of a line of a name, the width of a legend of such lines, and a line's height."""
WIDE = 9.9
"""From this ratio of the largest value to the smallest on, values stand on a logarithmic axis."""
STAR: dict[str, Any] = {"marker": "*", "s": 170, "color": "gold", "edgecolors": "black", "zorder": 5, "label": "best"}


def speed_ups(axes: "Axes", rows: Sequence[SweepRow]) -> None:
    """Against the run on one device, with the range of the epochs."""
    most = max(row.devices for row in rows)
    axes.plot([1, most], [1, most], "--", color="grey", label="ideal")
    _over_devices(axes, rows, divided=False)
    axes.set(xlabel="devices", ylabel="speed-up (×)", title="samples per second against one device")


def efficiencies(axes: "Axes", rows: Sequence[SweepRow]) -> None:
    axes.axhline(1, linestyle="--", color="grey", label="ideal")
    _over_devices(axes, rows, divided=True)
    axes.set(xlabel="devices", ylabel="speed-up / devices", title="efficiency (bars: slowest and fastest epoch)")


def _over_devices(axes: "Axes", rows: Sequence[SweepRow], divided: bool) -> None:
    lines = defaultdict(list)
    for row in rows:
        if row.speed_up is not None and row.speeds is not None and row.samples_per_second:
            scale = row.speed_up / row.samples_per_second / (row.devices if divided else 1)
            lines[label(row, rows, without=["devices"])].append(
                (row.devices, *(scale * speed for speed in (row.samples_per_second, *row.speeds)))
            )
    for name, points in lines.items():
        devices, middle, low, high = (list(own) for own in zip(*sorted(points), strict=True))
        below = [max(0.0, a - b) for a, b in zip(middle, low, strict=True)]
        above = [max(0.0, b - a) for a, b in zip(middle, high, strict=True)]
        axes.errorbar(devices, middle, yerr=[below, above], fmt="o-", capsize=4, label=name or "this sweep")
    axes.set_xticks(sorted({row.devices for row in rows}))
    axes.set_ylim(0, None)
    _legend(axes)


def speeds(axes: "Axes", rows: Sequence[SweepRow]) -> None:
    """Where all have as many devices, or none had one."""
    names = [_in_lines(label(row, rows)) for row in rows]
    middle = [row.samples_per_second or 0.0 for row in rows]
    ranges = [row.speeds or (own, own) for row, own in zip(rows, middle, strict=True)]
    below = [max(0.0, own - low) for own, (low, _) in zip(middle, ranges, strict=True)]
    above = [max(0.0, high - own) for own, (_, high) in zip(middle, ranges, strict=True)]
    axes.barh(range(len(rows)), middle, xerr=[below, above], capsize=4, color="tab:blue", alpha=0.8)
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.set(xlabel="samples per second", title="speed (bars: slowest and fastest epoch)", xlim=(0, None))


def metric_over(axes: "Axes", rows: Sequence[SweepRow], key: str, target: Target) -> None:
    """A line for each of what varies beside the key."""
    lines = defaultdict(list)
    for row in rows:
        lines[label(row, rows, without=[key])].append((row.varied[key], _value(row)))
    for name, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), "o-", label=name or None)
    for row in rows:
        if row.best:
            axes.scatter([row.varied[key]], [_value(row)], **STAR)
    axes.set(xlabel=key, ylabel=target.label, title=f"{target.label} over {key}")
    if _is_wide([row.varied[key] for row in rows]):
        axes.set_xscale("log")
    if axes.get_legend_handles_labels()[1] and len(lines) <= MOST_NAMED:
        _legend(axes)


def metric_map(axes: "Axes", rows: Sequence[SweepRow], keys: Sequence[str], target: Target) -> None:
    """Each job where its two numbers are, in the colour of its metric."""
    across, up = ([row.varied[key] for row in rows] for key in keys)
    points = axes.scatter(across, up, c=[_value(row) for row in rows], s=260, cmap="viridis", edgecolors="grey")
    for x, y, row in zip(across, up, rows, strict=True):
        axes.annotate(f"{_value(row):.3g}", (x, y), (0, 13), textcoords="offset points", ha="center", fontsize="small")
        if row.best:
            axes.scatter([x], [y], **STAR)
            axes.legend(loc="upper left", fontsize="small")
    for values, scale in ((across, axes.set_xscale), (up, axes.set_yscale)):
        if _is_wide(values):
            scale("log")
    axes.margins(0.15)
    axes.figure.colorbar(points, ax=axes, label=target.label)
    axes.set(xlabel=keys[0], ylabel=keys[1], title=f"{target.label}")


def metric_bars(axes: "Axes", rows: Sequence[SweepRow], target: Target) -> None:
    """Where what varies is no number. The axis begins where the differences can be seen, and dots claim no length."""
    for place, row in enumerate(rows):
        axes.plot([_value(row)], [place], "o", color="tab:blue")
        if row.best:
            axes.scatter([_value(row)], [place], **STAR)
            axes.legend(fontsize="small")
    axes.set_yticks(range(len(rows)), [_in_lines(label(row, rows)) for row in rows])
    axes.invert_yaxis()
    axes.grid(axis="y", alpha=0.4)
    axes.set(xlabel=target.label, title=f"{target.label} by job")


def losses(axes: "Axes", rows: Sequence[SweepRow], steps: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """Of each job's global batches. Earlier curves are wider, so that one which lies under another is seen."""
    key = next(iter(numbers_of(rows)), None) if len(rows) > MOST_NAMED else None
    colours = _colours(axes, rows, key) if key else [None] * len(rows)
    positive = True
    widest = min(4.0, 1.0 + 1.0 * (len(rows) - 1))
    for place, (row, lines, colour) in enumerate(zip(rows, steps, colours, strict=True)):
        values = [nan if line["loss_sum"] is None else line["loss_sum"] / line["samples"] for line in lines]
        positive = positive and all(value > 0 or isnan(value) for value in values)
        width = widest - (widest - 1.0) * place / max(1, len(rows) - 1)
        name = f"{row.job}: {label(row, rows)}".rstrip(": ") + (" (best)" if row.best else "")
        numbers = [line["step"] for line in lines]
        point = "o" if len(values) == 1 else None
        axes.plot(numbers, values, marker=point, linewidth=width, alpha=0.75, label=name, color=colour)
    axes.set(xlabel="optimizer step", ylabel="training loss of the global batch", title="loss of every job")
    axes.set_yscale("log" if positive else "linear")
    if len(rows) <= MOST_NAMED:
        _legend(axes)


def _legend(axes: "Axes") -> None:
    """Within the axes where its names are short; else beside them, for which the picture is made wider."""
    handles, names = axes.get_legend_handles_labels()
    if max(map(len, names)) <= LINE:
        axes.legend(fontsize="small")
        return
    lines = [_in_lines(name) for name in names]
    axes.legend(handles, lines, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.set_figwidth(figure.get_figwidth() + LEGEND_INCHES)
    figure.set_figheight(max(figure.get_figheight(), 1 + LINE_INCHES * "\n".join(lines).count("\n")))


def _in_lines(name: str) -> str:
    return "\n".join(wrap(name, LINE))


def _colours(axes: "Axes", rows: Sequence[SweepRow], key: str) -> list[Any]:
    """By a number that varies, with a bar that says which colour is which."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm, Normalize

    values = [float(row.varied[key]) for row in rows]
    norm = (LogNorm if _is_wide(values) else Normalize)(min(values), max(values))
    mapping = ScalarMappable(norm, "viridis")
    axes.figure.colorbar(mapping, ax=axes, label=key)
    return list(mapping.to_rgba(values))  # type: ignore[arg-type]


def _is_wide(values: Sequence[Any]) -> bool:
    return bool(min(values) > 0 and max(values) / min(values) >= WIDE)


def _value(row: SweepRow) -> float:
    return nan if row.target is None else row.target
