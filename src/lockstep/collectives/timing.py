"""Measure how long each primitive takes over message sizes from 4 bytes to 64 MiB.

As in NCCL's tests, n is the bytes of the full buffer, algorithm bandwidth is n/t, and bus bandwidth is that times the
share of n that each rank must move, so that it compares with the hardware for any number of ranks. If the buffer is
split into shares, n is rounded up to a whole float32 for each rank.

In one repetition all ranks leave a barrier, make one call and read their clocks; the slowest rank counts, then the
median over repetitions after warm-up calls. Send and receive take half of there and back. Ranks leave the barrier some
microseconds apart, which is part of every time.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from lockstep.collectives.calls import barrier, tensor_device
from lockstep.collectives.primitives import NOTHING, Primitive
from lockstep.parallel.messages import all_gather_bytes
from lockstep.sums.phases import synchronize

SIZES = tuple(4**power for power in range(1, 14))
"""4, 16, 64, … bytes, up to 64 MiB."""
BYTES = 4
"""The size of a float32."""


@dataclass(frozen=True)
class Timing:
    """A row of bench.csv: n in bytes, t in seconds; the bus moves n·`bus_factor` bytes."""

    primitive: str
    bytes: int
    seconds: float
    repetitions: int
    bus_factor: float

    def csv_row(self) -> dict[str, object]:
        """Return the fields with both bandwidths in GB/s, 10⁹ bytes; None if nothing moves."""
        algorithm = self.bytes / self.seconds / 1e9 or None
        return {
            **asdict(self),
            "algorithm_GB_per_s": algorithm,
            "bus_GB_per_s": algorithm and algorithm * self.bus_factor,
        }


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
        for size in (0,) if primitive.cost is NOTHING else sizes:
            count = primitive.divisible(-(-size // BYTES), world)
            warm_up, timed = repetitions(size)
            ranks = all_gather(time_calls(primitive, count, root, warm_up + timed))
            slowest = [max(times) for times in zip(*ranks, strict=True)]
            seconds = median(slowest[warm_up:]) / primitive.trips
            timings.append(Timing(primitive.name, BYTES * count, seconds, timed, primitive.cost.factor(world)))
    return timings


def all_gather(value: Any) -> list[Any]:
    """Return the values of all ranks, sent as JSON: no rank unpickles what another sent."""
    return [json.loads(message) for message in all_gather_bytes(json.dumps(value).encode())]


def time_calls(primitive: Primitive, count: int, root: int, calls: int) -> list[float]:
    """Return the seconds of each call on this rank. The tensors are zeros, so that no sum overflows."""
    device = tensor_device()
    inputs, outputs = primitive.sizes(count, dist.get_rank(), dist.get_world_size(), root)
    input = torch.zeros(inputs, device=device)
    output = input if outputs is None else torch.zeros(outputs, device=device)
    call, seconds = primitive.timed or primitive.call, []
    for _ in range(calls):
        synchronize(device)
        barrier(input, output, root)
        synchronize(device)
        began = time.perf_counter()
        call(input, output, root)
        synchronize(device)
        seconds.append(time.perf_counter() - began)
    return seconds
