"""Fit the line t = α + n·β to measured times: α is the latency of a call, 1/β the bandwidth of long messages.

Times span five orders of magnitude, so the fit minimizes the squares of relative errors, ((α + n·β) / t - 1)², with
neither α nor β below 0: plain least squares would fit the largest message alone.
"""

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
    """Plot the measured points and the fitted line of each primitive that moves bytes, on logarithmic axes."""
    with saved_figure(path, width=12, height=8) as figure:
        axes = figure.subplots()
        for fit in fits:
            points = [(row.bytes, 1e6 * row.seconds) for row in timings if row.primitive == fit.primitive and row.bytes]
            if points:
                sizes, times = zip(*points, strict=True)
                [markers] = axes.loglog(sizes, times, "o", markersize=4)
                lines = [1e6 * fit.seconds(size) for size in sizes]
                axes.loglog(sizes, lines, color=markers.get_color(), label=f"{fit.primitive}: measured and fitted")
        axes.set(xlabel="message size n in bytes", ylabel="time t in µs on the slowest rank")
        if axes.lines:
            axes.legend(fontsize="small")
