"""The picture of a sweep: what is drawn follows what varies.

Devices, a strategy or an engine: speed-up and efficiency, of runs whose epochs repeat enough to tell. A number: the
metric over it; two: a map. Anything else: the metric of each job. Always the loss of all jobs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.plot import saved_figure
from lockstep.sweep import panels
from lockstep.sweep.best import Target
from lockstep.sweep.jobs import SweepJob
from lockstep.sweep.labels import numbers_of
from lockstep.sweep.rows import SweepRow, worlds_differ

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Panel = Callable[["Axes"], None]
PANEL_WIDTH, PANEL_HEIGHT = 5.8, 4.6
"""Inches."""


def draw(rows: Sequence[SweepRow], jobs: Sequence[SweepJob], path: Path, target: Target | None = None) -> None:
    """Write the picture, as a PNG file."""
    finished = [(row, job) for row, job in zip(rows, jobs, strict=True) if job.results]
    chosen = chosen_panels([row for row, _ in finished], target)
    if losses := [(row, job.steps) for row, job in finished if job.steps]:
        chosen.append(partial(panels.losses, rows=[row for row, _ in losses], steps=[own for _, own in losses]))
    if not chosen:
        return
    with saved_figure(path, width=PANEL_WIDTH * len(chosen), height=PANEL_HEIGHT) as figure:
        for number, panel in enumerate(chosen, start=1):
            panel(figure.add_subplot(1, len(chosen), number))


def chosen_panels(rows: Sequence[SweepRow], target: Target | None) -> list[Panel]:
    """All but the losses."""
    chosen: list[Panel] = []
    timed = [row for row in rows if row.speeds is not None]
    if worlds_differ(timed):
        if len({row.devices for row in timed}) > 1 and any(row.speed_up is not None for row in timed):
            chosen += [partial(panels.speed_ups, rows=timed), partial(panels.efficiencies, rows=timed)]
        else:
            chosen.append(partial(panels.speeds, rows=timed))
    valued = [row for row in rows if row.target is not None]
    numbers = numbers_of(valued)
    if target is None or not any(len({str(value) for value in own}) > 1 for own in _columns(valued)):
        return chosen
    if len(numbers) == 2 and len(valued) > 3:
        chosen.append(partial(panels.metric_map, rows=valued, keys=numbers, target=target))
    elif numbers:
        chosen += [partial(panels.metric_over, rows=valued, key=key, target=target) for key in numbers[:3]]
    else:
        chosen.append(partial(panels.metric_bars, rows=valued, target=target))
    return chosen


def _columns(rows: Sequence[SweepRow]) -> list[list[object]]:
    return [[row.varied[key] for row in rows] for key in (rows[0].varied if rows else ())]
