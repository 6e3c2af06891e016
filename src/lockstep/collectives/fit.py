"""The line t = α + n·β through measured times: α is the latency of a call, 1/β the bandwidth of long ones.

Times go over five orders of magnitude, so the fit makes the *relative* error least: it minimises the sum over sizes of
((α + n·β - t) / t)², with α and β at least 0 (non-negative least squares of the rows (1/t, n/t) against 1). Plain least
squares would fit the largest message alone. How well a line fits, the median of |α + n·β - t| / t says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.optimize import nnls

from lockstep.collectives.bench import Timing


@dataclass(frozen=True)
class Fit:
    """`alpha` in seconds, `beta` in seconds a byte, `factor` from algorithm to bus bandwidth."""

    primitive: str
    alpha: float
    beta: float
    error: float
    factor: float

    def seconds(self, size: float) -> float:
        return self.alpha + size * self.beta

    @property
    def bandwidths(self) -> tuple[float | None, float | None]:
        """Algorithm and bus, in GB/s; None where time does not grow with size."""
        return (1e-9 / self.beta, 1e-9 / self.beta * self.factor) if self.beta > 0 else (None, None)

    def cells(self) -> dict[str, object]:
        """A row of fit.csv."""
        return {
            "primitive": self.primitive,
            "alpha_us": 1e6 * self.alpha,
            "algorithm_GB_per_s": self.bandwidths[0],
            "bus_GB_per_s": self.bandwidths[1],
            "median_relative_error": self.error,
        }


def line_through(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """α and β. Sizes are scaled to at most 1 before they are solved for, and β back again."""
    size, time = np.array(sizes, dtype=float), np.array(seconds, dtype=float)
    largest = max(size.max(), 1.0)
    (alpha, beta), _residual = nnls(np.stack([1 / time, size / largest / time], axis=1), np.ones_like(time))
    return float(alpha), float(beta / largest)


def fits(timings: Sequence[Timing]) -> list[Fit]:
    """A line for each primitive, in the order in which they were measured."""
    found = []
    for name in dict.fromkeys(timing.primitive for timing in timings):
        own = [timing for timing in timings if timing.primitive == name]
        alpha, beta = line_through([timing.size for timing in own], [timing.seconds for timing in own])
        error = median(abs(alpha + timing.size * beta - timing.seconds) / timing.seconds for timing in own)
        found.append(Fit(name, alpha, beta, error, own[0].factor))
    return found
