"""Time each primitive over message sizes, and fit t = α + n·β: α is the latency of a call, 1/β the bandwidth.

As in NCCL's tests, n is the bytes of the full buffer, a whole float32 for each rank if it is split. Bus bandwidth is
n/t times the share of n that each rank must move, so that it compares with the hardware for any number of ranks.

In one repetition all ranks leave a barrier, some microseconds apart, make one call and read their clocks; the slowest
rank counts, then the median over repetitions. The fit minimizes the squares of relative errors: plain least squares
would fit the largest message alone.
"""

import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.collectives.primitives import ALL_BUT_OWN, BUS_FACTORS, PRIMITIVES, Primitive, barrier, tensor_device
from lockstep.files import save_table
from lockstep.parallel.messages import all_gather_json
from lockstep.plot import saved_figure
from lockstep.sums.phases import synchronize
from lockstep.text_table import rows_text, width_shown

SIZES = tuple(4**power for power in range(1, 14))
"""4, 16, 64, … bytes, up to 64 MiB."""
BYTES = 4
"""The size of a float32."""
WARM_UP = 2
"""Calls before the timed ones."""


def measure(root: int, sizes: Sequence[int] = SIZES) -> list[dict[str, Any]]:
    """Time the primitives that move bytes at all sizes; return the rows of bench.csv, with 10⁹ bytes in a GB."""
    world, rows = dist.get_world_size(), []
    for primitive in PRIMITIVES:
        factor = BUS_FACTORS[primitive.cost](world)
        if not factor:
            continue
        if dist.get_rank() == 0:
            print(f"bench: {primitive.name}", flush=True)
        unit = BYTES * world if primitive.cost == ALL_BUT_OWN else BYTES
        for size in sizes:
            rounded = -(-size // unit) * unit
            timed = 41 if size <= 2**16 else 15 if size <= 2**20 else 5
            ranks = all_gather_json(time_calls(primitive, rounded // BYTES, root, WARM_UP + timed))
            seconds = median([max(times) for times in zip(*ranks, strict=True)][WARM_UP:])
            row = {"primitive": primitive.name, "bytes": rounded, "seconds": seconds, "repetitions": timed}
            rows.append({**row, "bus_factor": factor, **bandwidths(rounded / seconds, factor)})
    return rows


def time_calls(primitive: Primitive, count: int, root: int, calls: int) -> list[float]:
    """Return the seconds of each call on this rank. The tensors stay zeros, so that no sum overflows."""
    input, output = buffers(primitive, count)
    seconds = []
    for _ in range(calls):
        synchronize(input.device)
        barrier(input, output, root)
        synchronize(input.device)
        began = time.perf_counter()
        primitive.call(input, output, root)
        synchronize(input.device)
        seconds.append(time.perf_counter() - began)
    return seconds


def buffers(primitive: Primitive, count: int) -> tuple[Tensor, Tensor]:
    """Return zeros for input and output, if the full tensor holds `count` numbers."""
    sizes = {"full": count, "share": count // dist.get_world_size()}
    input = torch.zeros(sizes[primitive.input], device=tensor_device())
    return input, input if primitive.output == "none" else torch.zeros(sizes[primitive.output], device=input.device)


def bandwidths(bytes_per_second: float, bus_factor: float) -> dict[str, float]:
    return {"algorithm_GB_per_s": bytes_per_second / 1e9, "bus_GB_per_s": bytes_per_second / 1e9 * bus_factor}


def show_benchmark(timings: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Save the times and the fitted line of each primitive as two CSV files and a plot, and print the lines."""
    fits = []
    with saved_figure(folder / "bench.png", width=12, height=8) as figure:
        axes = figure.subplots()
        axes.set(xlabel="message size n in bytes", ylabel="time t in µs on the slowest rank")
        for name, group in groupby(timings, key=lambda timing: timing["primitive"]):
            rows = list(group)
            sizes, seconds = (np.array([row[key] for row in rows]) for key in ("bytes", "seconds"))
            beta, alpha = np.polyfit(sizes, seconds, 1, w=1 / seconds).tolist()
            line = alpha + sizes * beta
            fit = {"primitive": name, "alpha_us": 1e6 * alpha, **bandwidths(1 / beta, rows[0]["bus_factor"])}
            fits.append({**fit, "median_relative_error": float(median(abs(line / seconds - 1)))})
            [markers] = axes.loglog(sizes, 1e6 * seconds, "o", markersize=4)
            axes.loglog(sizes, 1e6 * line, color=markers.get_color(), label=f"{name}: measured and fitted")
        axes.legend(fontsize="small")
    save_table(folder / "bench.csv", timings)
    save_table(folder / "fit.csv", fits)
    print(f"\nfit t = α + n·β, with the bandwidth 1/β\n{rows_text(fits, width_shown())}", flush=True)
