"""Measure how long each primitive takes over message sizes, and fit the line t = α + n·β to the times.

As in NCCL's tests, n is the bytes of the full buffer, algorithm bandwidth is n/t, and bus bandwidth is that times the
share of n that each rank must move, so that it compares with the hardware for any number of ranks. If the buffer is
split into shares, n is rounded up to a whole float32 for each rank.

In one repetition all ranks leave a barrier, make one call and read their clocks; the slowest rank counts, then the
median over repetitions after warm-up calls. Send and receive take half of there and back. Ranks leave the barrier some
microseconds apart, which is part of every time.

α is the latency of a call, 1/β the bandwidth of long messages. Times span five orders of magnitude, so the fit
minimizes the squares of relative errors, ((α + n·β) / t - 1)²: plain least squares would fit the largest message alone.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from statistics import median

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.collectives.primitives import (
    ALL_BUT_OWN,
    BUS_FACTORS,
    NOTHING,
    Primitive,
    barrier,
    tensor_device,
)
from lockstep.files import save_table
from lockstep.parallel.messages import all_gather_json
from lockstep.plot import saved_figure
from lockstep.sums.phases import synchronize
from lockstep.text_table import figures, fitted_text, width_shown

SIZES = tuple(4**power for power in range(1, 14))
"""4, 16, 64, … bytes, up to 64 MiB."""
BYTES = 4
"""The size of a float32."""
HEADINGS = ("fit t = α + n·β", "latency α in µs", "bandwidth 1/β: algorithm GB/s", "bus GB/s", "median error")


@dataclass(frozen=True)
class Timing:
    """A row of bench.csv: n in bytes, t in seconds, bandwidths in 10⁹ bytes per second (None if nothing moves)."""

    primitive: str
    bytes: int
    seconds: float
    repetitions: int
    bus_factor: float
    algorithm_GB_per_s: float | None  # noqa: N815  # a CSV heading, with its unit
    bus_GB_per_s: float | None  # noqa: N815


def repetitions(size: int) -> tuple[int, int]:
    """Return the numbers of warm-up calls and of timed calls; they follow from the size, so all ranks agree."""
    if size <= 2**16:
        return 5, 40
    return (2, 15) if size <= 2**20 else (1, 5)


def measure(primitives: Sequence[Primitive], root: int, sizes: Sequence[int] = SIZES) -> list[Timing]:
    """Time all primitives at all sizes, or once if they move nothing."""
    world, timings = dist.get_world_size(), []
    for number, primitive in enumerate(primitives, start=1):
        if dist.get_rank() == 0:
            print(f"bench {number}/{len(primitives)}: {primitive.name}", flush=True)
        unit = BYTES * world if primitive.cost == ALL_BUT_OWN else BYTES
        for size in (0,) if primitive.cost == NOTHING else sizes:
            rounded = -(-size // unit) * unit
            warm_up, timed = repetitions(size)
            ranks = all_gather_json(time_calls(primitive, rounded // BYTES, root, warm_up + timed))
            slowest = [max(times) for times in zip(*ranks, strict=True)]
            seconds = median(slowest[warm_up:]) / primitive.trips
            factor = BUS_FACTORS[primitive.cost](world)
            rates = bandwidths(rounded / seconds, factor)
            timings.append(Timing(primitive.name, rounded, seconds, timed, factor, *rates))
    return timings


def time_calls(primitive: Primitive, count: int, root: int, calls: int) -> list[float]:
    """Return the seconds of each call on this rank. The tensors stay zeros, so that no sum overflows."""
    input, output = buffers(primitive, count)
    call, seconds = primitive.timed or primitive.call, []
    for _ in range(calls):
        synchronize(input.device)
        barrier(input, output, root)
        synchronize(input.device)
        began = time.perf_counter()
        call(input, output, root)
        synchronize(input.device)
        seconds.append(time.perf_counter() - began)
    return seconds


def buffers(primitive: Primitive, count: int) -> tuple[Tensor, Tensor]:
    """Return zeros for input and output, if the full tensor holds `count` numbers."""
    sizes = {"full": count, "share": count // dist.get_world_size()}
    input = torch.zeros(sizes[primitive.input], device=tensor_device())
    return input, input if primitive.output == "none" else torch.zeros(sizes[primitive.output], device=input.device)


def fit_line(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Fit seconds = α + β size by least squares of the relative errors, neither of them below 0; return α and β."""
    weights = 1 / np.array(seconds)
    relative = np.array(sizes) * weights
    if len(sizes) == 1:
        return seconds[0], 0.0
    beta, alpha = np.polyfit(sizes, seconds, 1, w=weights).tolist()
    if beta < 0:
        return float(weights.sum() / (weights**2).sum()), 0.0
    if alpha < 0:
        return 0.0, float(relative.sum() / (relative**2).sum())
    return alpha, beta


def bandwidths(bytes_per_second: float, bus_factor: float) -> tuple[float | None, float | None]:
    """Return the bandwidths of the algorithm and of the bus, in GB/s."""
    return (bytes_per_second / 1e9, bytes_per_second / 1e9 * bus_factor) if bytes_per_second else (None, None)


def show_benchmark(timings: Sequence[Timing], folder: Path) -> None:
    """Save the times and the fitted line of each primitive as two CSV files and a plot, and print the lines."""
    fits, cells = [], []
    with saved_figure(folder / "bench.png", width=12, height=8) as figure:
        axes = figure.subplots()
        axes.set(xlabel="message size n in bytes", ylabel="time t in µs on the slowest rank")
        for name, group in groupby(timings, key=lambda timing: timing.primitive):
            rows = list(group)
            sizes, seconds = np.array([row.bytes for row in rows]), np.array([row.seconds for row in rows])
            alpha, beta = fit_line(sizes.tolist(), seconds.tolist())
            line = alpha + sizes * beta
            algorithm, bus = bandwidths(1 / beta if beta else 0.0, rows[0].bus_factor)
            error = median(abs(line / seconds - 1))
            fits.append(
                {
                    "primitive": name,
                    "alpha_us": 1e6 * alpha,
                    "algorithm_GB_per_s": algorithm,
                    "bus_GB_per_s": bus,
                    "median_relative_error": error,
                }
            )
            cells.append([name, figures(1e6 * alpha), figures(algorithm), figures(bus), f"{error:.0%}"])
            if sizes.any():
                [markers] = axes.loglog(sizes, 1e6 * seconds, "o", markersize=4)
                axes.loglog(sizes, 1e6 * line, color=markers.get_color(), label=f"{name}: measured and fitted")
        axes.legend(fontsize="small")
    save_table(folder / "bench.csv", [asdict(timing) for timing in timings])
    save_table(folder / "fit.csv", fits)
    print(f"\n{fitted_text(HEADINGS, cells, width_shown())}", flush=True)
