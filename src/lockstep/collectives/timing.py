"""How long each primitive takes over message sizes from 4 bytes to 64 MiB: latency, algorithm and bus bandwidth.

As NCCL's tests count: n is the bytes of the whole buffer, algorithm bandwidth is n/t, and bus bandwidth is that times
the share of n that each rank must move, so that it compares with the hardware whatever the number of ranks. Where the
buffer is split into shares, n is rounded up to a whole float32 for each rank; the result names the real n.

One repetition: all ranks leave a barrier, make one call, and read their clocks; it took as long as on the slowest
rank. The median over repetitions counts, after warm-up calls. Send and receive take half of there and back. Ranks leave
the barrier some microseconds apart, and who leaves first counts its wait for the last: that is in every time.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from lockstep.collectives.calls import barrier, own_device
from lockstep.collectives.primitives import NOTHING, Primitive
from lockstep.parallel.messages import all_gather_bytes
from lockstep.sums.phases import synchronize

SIZES = tuple(4**power for power in range(1, 14))
"""4, 16, 64, … bytes, up to 64 MiB."""

BYTES = 4
"""Of a float32."""


@dataclass(frozen=True)
class Timing:
    """A row of bench.csv: n in bytes, t in seconds; the bus moves n·`bus_factor` bytes."""

    primitive: str
    bytes: int
    seconds: float
    repetitions: int
    bus_factor: float

    @property
    def bandwidths(self) -> tuple[float | None, float | None]:
        """Algorithm and bus, in GB/s, 10⁹ bytes; None where nothing moves."""
        algorithm = self.bytes / self.seconds / 1e9
        return (algorithm, algorithm * self.bus_factor) if self.bytes else (None, None)

    def cells(self) -> dict[str, object]:
        algorithm, bus = self.bandwidths
        return {**asdict(self), "algorithm_GB_per_s": algorithm, "bus_GB_per_s": bus}


def repetitions(size: int) -> tuple[int, int]:
    """Warm-up calls, and calls that count: by size alone, so that all ranks agree."""
    if size <= 2**16:
        return 5, 40
    return (2, 15) if size <= 2**20 else (1, 5)


def measure(
    primitives: Sequence[Primitive], root: int, group: dist.ProcessGroup | None, sizes: Sequence[int] = SIZES
) -> list[Timing]:
    """All primitives at all sizes; those that move nothing, once. Times are exchanged over `group`."""
    world, timings = dist.get_world_size(), []
    for number, primitive in enumerate(primitives, start=1):
        if dist.get_rank() == 0:
            print(f"bench {number}/{len(primitives)}: {primitive.name}", flush=True)
        for size in (0,) if primitive.cost is NOTHING else sizes:
            count = primitive.divisible(-(-size // BYTES), world)
            warm_up, counted = repetitions(size)
            ranks = all_gather(time_calls(primitive, count, root, warm_up + counted), group)
            slowest = [max(times) for times in zip(*ranks, strict=True)]
            seconds = median(slowest[warm_up:]) / primitive.trips
            timings.append(Timing(primitive.name, BYTES * count, seconds, counted, primitive.cost.factor(world)))
    return timings


def all_gather(value: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """Return the values of all ranks as JSON has them: no rank unpickles what another sent."""
    return [json.loads(one) for one in all_gather_bytes(json.dumps(value).encode(), group)]


def time_calls(primitive: Primitive, count: int, root: int, repeat: int) -> list[float]:
    """The seconds that each of the calls took on this rank. The tensors are zeros: no sum of theirs overflows."""
    device = own_device()
    inputs, outputs = primitive.sizes(count, dist.get_rank(), dist.get_world_size(), root)
    input = torch.zeros(inputs, device=device)
    output = input if outputs is None else torch.zeros(outputs, device=device)
    call, seconds = primitive.timed or primitive.call, []
    for _ in range(repeat):
        synchronize(device)
        barrier(input, output, root)
        synchronize(device)
        began = time.perf_counter()
        call(input, output, root)
        synchronize(device)
        seconds.append(time.perf_counter() - began)
    return seconds
