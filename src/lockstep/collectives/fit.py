"""Fit the line t = α + n·β to measured times: α is the latency of a call, 1/β the bandwidth of long messages.

Times span five orders of magnitude, so the fit minimizes the squares of relative errors, ((α + n·β) / t - 1)², with
neither α nor β below 0: plain least squares would fit the largest message alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median

import numpy as np
from scipy.optimize import nnls

from lockstep.collectives.timing import Timing
from lockstep.plot import saved_figure
from lockstep.text_table import figures, fitted_text

COLUMNS = 4
"""Panels of the plot beside each other."""


@dataclass(frozen=True)
class Fit:
    """A row of fit.csv; the bandwidths are 1/β in 10⁹ bytes per second, or None if time does not grow with size."""

    primitive: str
    alpha_us: float
    algorithm_GB_per_s: float | None  # noqa: N815  # a CSV heading, with its unit
    bus_GB_per_s: float | None  # noqa: N815
    median_relative_error: float

    def seconds(self, size: int) -> float:
        return self.alpha_us / 1e6 + (size / self.algorithm_GB_per_s / 1e9 if self.algorithm_GB_per_s else 0.0)


def fit_line(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Return α and β."""
    size, time = np.array(sizes, dtype=float), np.array(seconds, dtype=float)
    scale = size.max() or 1.0
    (alpha, longest), _ = nnls(np.stack([1 / time, size / scale / time], axis=1), np.ones(len(time)))
    return float(alpha), float(longest / scale)


def fit_all(timings: Sequence[Timing]) -> list[Fit]:
    """Fit a line for each primitive, in the order in which they were measured."""
    fits = []
    for name, group in groupby(timings, key=lambda timing: timing.primitive):
        rows = list(group)
        alpha, beta = fit_line([row.bytes for row in rows], [row.seconds for row in rows])
        error = median(abs(alpha + row.bytes * beta - row.seconds) / row.seconds for row in rows)
        algorithm = 1e-9 / beta if beta else None
        fits.append(Fit(name, 1e6 * alpha, algorithm, algorithm and algorithm * rows[0].bus_factor, error))
    return fits


def fit_table(fits: Sequence[Fit], width: int | None = None) -> str:
    table = []
    for fit in fits:
        numbers = map(figures, (fit.alpha_us, fit.algorithm_GB_per_s, fit.bus_GB_per_s))
        table.append([fit.primitive, *numbers, f"{fit.median_relative_error:.0%}"])
    headings = ("fit t = α + n·β", "latency α in µs", "bandwidth 1/β: algorithm GB/s", "bus GB/s", "median error")
    return fitted_text(headings, table, width)


def draw(timings: Sequence[Timing], fits: Sequence[Fit], path: Path) -> None:
    """Plot a panel for each primitive that moves bytes: measured points and the fitted line, on logarithmic axes."""
    points = {fit: [row for row in timings if row.primitive == fit.primitive and row.bytes] for fit in fits}
    fits = [fit for fit in fits if points[fit]]
    rows = max(1, math.ceil(len(fits) / COLUMNS))
    with saved_figure(path, width=14, height=3.2 * rows) as figure:
        panels = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False).flatten()
        for panel, fit in zip(panels, fits, strict=False):
            sizes = [row.bytes for row in points[fit]]
            slope = f" + n / ({figures(fit.algorithm_GB_per_s)} GB/s)" if fit.algorithm_GB_per_s else ""
            panel.loglog(sizes, [1e6 * row.seconds for row in points[fit]], "o", markersize=4, label="measured")
            label = f"fit: {figures(fit.alpha_us)} µs{slope}"
            panel.loglog(sizes, [1e6 * fit.seconds(size) for size in sizes], label=label)
            panel.set_title(fit.primitive, fontsize="medium")
            panel.tick_params(labelbottom=True)
            panel.legend(fontsize="x-small", loc="upper left")
        for panel in panels[len(fits) :]:
            panel.set_visible(False)
        figure.supxlabel("message size n in bytes")
        figure.supylabel("time t in µs on the slowest rank")
