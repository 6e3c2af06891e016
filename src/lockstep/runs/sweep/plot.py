"""The picture of a sweep; what varies decides what is drawn, beside the curves of all jobs."""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.base.config_error import is_number, shorten, truncate
from lockstep.plan.schemas.groups import short_keys
from lockstep.runs.sweep.jobs import WORLD, RankingMetric, SweepRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LABEL, MAX_LINES = 40, 24  # characters of a label, and lines in a legend
COLUMNS = 3
STYLES = {"ideal": "k--", "best": "k*"}  # of lines with these names
Points = Sequence[tuple[Any, float]]


@dataclass(frozen=True)
class Panel:
    """A plot: its lines by name, and matplotlib's style of their points."""

    title: str
    x: str
    lines: Mapping[str, Points]
    style: str = "o-"

    def draw(self, axes: "Axes") -> None:
        """Draw earlier lines wider, so that equal ones are all visible."""
        import matplotlib as mpl

        colours = mpl.colormaps["turbo"].resampled(len(self.lines))
        for place, (name, points) in enumerate(self.lines.items()):
            style = STYLES.get(name) or (self.style if len(points) > 1 else "o")
            options: dict[str, Any] = {} if name in STYLES else {"color": colours(place), "alpha": 0.75}
            width = 3 - 2 * place / len(self.lines)
            axes.plot(*zip(*points, strict=True), style, linewidth=width, label=name or "jobs", **options)
        if self.x in ("devices", "step"):
            axes.locator_params("x", integer=True)
        axis = "y" if self.x == "step" else "x"
        numbers = [point["xy".index(axis)] for points in self.lines.values() for point in points]
        if all(map(is_number, numbers)) and 0 < 9 * min(numbers) < max(numbers):
            axes.set(**{f"{axis}scale": "log"})
        axes.set(title=self.title, xlabel=self.x)
        if 1 < len(self.lines) <= MAX_LINES:
            axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)


def draw(rows: Sequence[SweepRow], path: Path, metric: RankingMetric | None = None) -> None:
    """Write the picture as a PNG file, without a display, if there is anything to draw."""
    panels = panels_of([row for row in rows if not row.cells["reason"]], metric)
    if not panels:
        return
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # the first import logs that it builds a font cache
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(panels))
    lines = ceil(len(panels) / columns)
    figure = Figure(figsize=(8 * columns, 4.4 * lines), layout="constrained")
    for number, panel in enumerate(panels, start=1):
        panel.draw(figure.add_subplot(lines, columns, number))
    figure.savefig(path, dpi=100)


def panels_of(rows: Sequence[SweepRow], metric: RankingMetric | None) -> list[Panel]:
    """Return the speed-up over devices, the ranked metric over up to three options that vary, and curves."""
    panels = []
    timed = [row for row in rows if row.cells["speed_up"]]
    if len(devices := {row.cells["devices"] for row in timed}) > 1:
        lines = lines_over("devices", timed, [(row.cells["devices"], row.cells["speed_up"]) for row in timed])
        panels.append(Panel("speed-up", "devices", {**lines, "ideal": [(n, n) for n in (1, max(devices))]}))
    keys = [key for key in (rows[0].varied if rows else ()) if len({str(row.varied[key]) for row in rows}) > 1]
    for key in keys[:3] if metric is not None else ():
        values = [row.varied[key] for row in rows]
        numeric = all(map(is_number, values))
        places = values if numeric else [shorten(str(value), MAX_LABEL // 2) for value in values]
        points = [(place, row.score) for place, row in zip(places, rows, strict=True)]
        best = [point for point, row in zip(points, rows, strict=True) if row.cells["best"]]
        lines = lines_over(key, rows, points) | ({"best": best} if best else {})
        title = f"{metric.label} over {key}" if metric else ""
        panels.append(Panel(title, key, lines, "o-" if numeric else "o"))
    jobs = {f"{row.cells['job']}: {label(row, rows)}".removesuffix(": "): row for row in rows if row.steps}
    losses = {
        name: [
            (line["step"], nan if line["loss_sum"] is None else line["loss_sum"] / line["samples"]) for line in lines
        ]
        for name, lines in ((name, row.steps) for name, row in jobs.items())
    }
    logged = dict.fromkeys(name for row in jobs.values() for _, line in row.validations for name in line)
    ranked = [metric.label.removeprefix("best ")] if metric else []
    names = [name for name in (*ranked, "val/loss", "val_loss", *logged) if name in logged and "val" in name]
    validated = {
        job: points
        for name in names[:1]
        for job, row in jobs.items()
        if (points := [(step, line[name]) for step, line in row.validations if name in line])
    }
    curves = Panel("training loss", "step", losses, "-"), Panel("".join(names[:1]), "step", validated, ".-")
    return [*panels, *(panel for panel in curves if panel.lines)]


def lines_over(key: str, rows: Sequence[SweepRow], points: Points) -> dict[str, Points]:
    """Return the points of rows as lines, one for each combination of what varies beside `key`."""
    lines = defaultdict(list)
    for row, point in zip(rows, points, strict=True):
        lines[label(row, rows, without=[key])].append(point)
    return {name: sorted(line) for name, line in lines.items()}


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
