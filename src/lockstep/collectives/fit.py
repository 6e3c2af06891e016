"""The line t = α + n·β through measured times: α is the latency of a call, 1/β the bandwidth of long messages.

Times span five orders of magnitude, so the fit minimises the sum of log²((α + n·β) / t): plain least squares would fit
the largest message alone. How well a line fits, the median of |α + n·β - t| / t says.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median

import numpy as np
from scipy.optimize import least_squares

from lockstep.collectives.timing import Timing
from lockstep.plot import saved_figure
from lockstep.text_table import figures, fitted_text

COLUMNS = 4
"""Panels of the plot beside each other."""

FLAT = 1e-3
"""Where the largest message takes less than this share of α longer, nothing is known about β."""


@dataclass(frozen=True)
class Fit:
    """A row of fit.csv; the bandwidths are 1/β, in 10⁹ bytes per second, or None where time doesn't grow with size."""

    primitive: str
    alpha_us: float
    algorithm_GB_per_s: float | None  # noqa: N815  # a CSV heading, with its unit
    bus_GB_per_s: float | None  # noqa: N815
    median_relative_error: float

    def seconds(self, size: int) -> float:
        return self.alpha_us / 1e6 + (size / self.algorithm_GB_per_s / 1e9 if self.algorithm_GB_per_s else 0.0)


def fit_line(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """α and β, at least 0; where time does not grow with size, the geometric mean and 0."""
    size, time = np.array(sizes, dtype=float), np.array(seconds, dtype=float)
    mean, largest = float(np.exp(np.log(time).mean())), float(size.max())
    if largest == 0:
        return mean, 0.0
    start = np.log([time.min(), max(time.max() - time.min(), FLAT * time.min())])
    # the unknowns are log α and log(largest·β): both in the same unit, and neither below 0
    solved = least_squares(
        lambda logs: np.log(np.exp(logs[0]) + size / largest * np.exp(logs[1])) - np.log(time),
        start, xtol=1e-12, ftol=1e-12, gtol=1e-12,
    )  # fmt: skip
    alpha, longest = (float(value) for value in np.exp(solved.x))
    return (alpha, longest / largest) if longest > FLAT * alpha else (mean, 0.0)


def fit_all(timings: Sequence[Timing]) -> list[Fit]:
    """Fit a line for each primitive, in the order in which they were measured."""
    fits = []
    for name, group in groupby(timings, key=lambda timing: timing.primitive):
        measured = list(group)
        alpha, beta = fit_line([one.bytes for one in measured], [one.seconds for one in measured])
        error = median(abs(alpha + one.bytes * beta - one.seconds) / one.seconds for one in measured)
        algorithm = 1e-9 / beta if beta else None
        fits.append(Fit(name, 1e6 * alpha, algorithm, algorithm and algorithm * measured[0].bus_factor, error))
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
    measured = {fit: [one for one in timings if one.primitive == fit.primitive and one.bytes] for fit in fits}
    drawn = [fit for fit in fits if measured[fit]]
    rows = max(1, math.ceil(len(drawn) / COLUMNS))
    with saved_figure(path, width=14, height=3.2 * rows) as figure:
        panels = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False).flatten()
        for panel, fit in zip(panels, drawn, strict=False):
            sizes = [one.bytes for one in measured[fit]]
            slope = f" + n / ({figures(fit.algorithm_GB_per_s)} GB/s)" if fit.algorithm_GB_per_s else ""
            label = f"fit: {figures(fit.alpha_us)} µs{slope}"
            panel.loglog(sizes, [1e6 * one.seconds for one in measured[fit]], "o", markersize=4, label="measured")
            panel.loglog(sizes, [1e6 * fit.seconds(size) for size in sizes], label=label)
            panel.set_title(fit.primitive, fontsize="medium")
            panel.tick_params(labelbottom=True)
            panel.legend(fontsize="x-small", loc="upper left")
        for empty in panels[len(drawn) :]:
            empty.set_visible(False)
        figure.supxlabel("message size n in bytes")
        figure.supylabel("time t in µs, the slowest rank's")
