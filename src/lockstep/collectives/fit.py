"""The line t = α + n·β through measured times: α is the latency of a call, 1/β the bandwidth of long ones.

Times go over five orders of magnitude, so what is made least is by which *factor* the line is off: the sum over sizes
of log²((α + n·β) / t). Plain least squares would fit the largest message alone, and squares of relative errors forgive
a line that is ten times too low more than one that is twice too high. How well a line fits, the median of
|α + n·β - t| / t says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.optimize import least_squares

from lockstep.collectives.bench import Timing

FLAT = 1e-3
"""A largest message that takes so little more than α, as a share of it, tells nothing of β."""


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
    """α and β. Their logarithms are looked for, so both are above 0; where time does not grow with size, β is 0."""
    size, time = np.array(sizes, dtype=float), np.array(seconds, dtype=float)
    level = float(np.exp(np.log(time).mean()))
    largest = float(size.max())
    if largest == 0:
        return level, 0.0
    share, logs = size / largest, np.log(time)  # sizes as shares of the largest, so that both unknowns are seconds

    def factors(unknown: np.ndarray) -> np.ndarray:
        alpha, longest = np.exp(unknown)
        off: np.ndarray = np.log(alpha + share * longest) - logs
        return off

    start = np.log([time.min(), max(time.max() - time.min(), FLAT * time.min())])
    alpha, longest = np.exp(least_squares(factors, start, xtol=1e-12, ftol=1e-12, gtol=1e-12).x)
    return (float(alpha), float(longest / largest)) if longest > FLAT * alpha else (level, 0.0)


def fits(timings: Sequence[Timing]) -> list[Fit]:
    """A line for each primitive, in the order in which they were measured."""
    found = []
    for name in dict.fromkeys(timing.primitive for timing in timings):
        own = [timing for timing in timings if timing.primitive == name]
        alpha, beta = line_through([timing.size for timing in own], [timing.seconds for timing in own])
        error = median(abs(alpha + timing.size * beta - timing.seconds) / timing.seconds for timing in own)
        found.append(Fit(name, alpha, beta, error, own[0].factor))
    return found
