"""The line t = α + n·β through measured times: α is the latency of a call, 1/β the bandwidth of long messages.

Times span five orders of magnitude, so the fit minimises the sum of log²((α + n·β) / t): plain least squares would fit
the largest message alone. How well a line fits, the median of |α + n·β - t| / t says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

import numpy as np
from scipy.optimize import least_squares

from lockstep.collectives.timing import Timing

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
    """A line for each primitive, in the order in which they were measured."""
    found = []
    for name, group in groupby(timings, key=lambda timing: timing.primitive):
        own = list(group)
        alpha, beta = fit_line([timing.bytes for timing in own], [timing.seconds for timing in own])
        error = median(abs(alpha + timing.bytes * beta - timing.seconds) / timing.seconds for timing in own)
        algorithm = 1e-9 / beta if beta else None
        found.append(Fit(name, 1e6 * alpha, algorithm, algorithm and algorithm * own[0].bus_factor, error))
    return found
