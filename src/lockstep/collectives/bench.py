"""How long each primitive takes over message sizes from 4 bytes to 64 MiB: latency, algorithm and bus bandwidth.

As NCCL's tests count: n is the bytes of the whole buffer, algorithm bandwidth is n/t, and bus bandwidth is that times
the share of n that each rank must move, so that it compares with the hardware whatever the number of ranks. Where the
buffer is cut into shares, n is rounded up to a whole float32 for each rank; the result names the real n.

One repetition: all ranks leave a barrier, make one call, and look at their clocks; it took as long as on the slowest
rank. The median over repetitions counts, after warm-up calls. Send and receive take half of there and back. Ranks leave
the barrier some microseconds apart, and who leaves first counts its wait for the last: that is in every time.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch
import torch.distributed as dist

from lockstep.collectives.calls import barrier, own_device
from lockstep.collectives.entry import NOTHING, Primitive
from lockstep.parallel import synchronize, to_all

SIZES = tuple(4**power for power in range(1, 14))
"""4, 16, 64, … bytes, up to 64 MiB."""

BYTES = 4
"""Of a float32."""


@dataclass(frozen=True)
class Timing:
    """`size` is the real n in bytes; `factor` leads from algorithm to bus bandwidth."""

    primitive: str
    size: int
    seconds: float
    repetitions: int
    factor: float

    @property
    def bandwidths(self) -> tuple[float | None, float | None]:
        """Algorithm and bus, in GB/s, 10⁹ bytes; None where nothing moves."""
        algorithm = self.size / self.seconds / 1e9
        return (algorithm, algorithm * self.factor) if self.size else (None, None)

    def cells(self) -> dict[str, object]:
        """A row of bench.csv."""
        return {
            "primitive": self.primitive,
            "bytes": self.size,
            "seconds": self.seconds,
            "algorithm_GB_per_s": self.bandwidths[0],
            "bus_GB_per_s": self.bandwidths[1],
            "repetitions": self.repetitions,
        }


def repetitions(size: int) -> tuple[int, int]:
    """Warm-up calls, and calls that count: by size alone, so that all ranks agree."""
    if size <= 2**16:
        return 5, 40
    return (2, 15) if size <= 2**20 else (1, 5)


def measure(
    primitives: Sequence[Primitive], root: int, messenger: dist.ProcessGroup | None, sizes: Sequence[int] = SIZES
) -> list[Timing]:
    """All primitives at all sizes; those that move nothing, once."""
    world, found = dist.get_world_size(), []
    for number, primitive in enumerate(primitives, start=1):
        if dist.get_rank() == 0:
            print(f"bench {number}/{len(primitives)}: {primitive.name}", flush=True)
        for size in (0,) if primitive.cost is NOTHING else sizes:
            numbers = primitive.whole(-(-size // BYTES), world)
            warm, counted = repetitions(size)
            seconds = slowest(calls(primitive, numbers, root, warm + counted), messenger)[warm:]
            factor = primitive.cost.factor(world)
            found.append(Timing(primitive.name, BYTES * numbers, median(seconds) / primitive.trips, counted, factor))
    return found


def calls(primitive: Primitive, numbers: int, root: int, times: int) -> list[float]:
    """The seconds that each of so many calls took on this rank. The tensors are zeros: no sum of theirs overflows."""
    device = own_device()
    gives, takes = primitive.sizes(numbers, dist.get_rank(), dist.get_world_size(), root)
    given = torch.zeros(gives, device=device)
    taken = None if takes is None else torch.zeros(takes, device=device)
    call, seconds = primitive.timed or primitive.call, []
    for _ in range(times):
        synchronize(device)
        barrier()
        synchronize(device)
        began = time.perf_counter()
        call(given, taken, root)
        synchronize(device)
        seconds.append(time.perf_counter() - began)
    return seconds


def slowest(seconds: list[float], messenger: dist.ProcessGroup | None) -> list[float]:
    """Each call's time on the rank where it took longest."""
    everyones: list[list[float]] = [json.loads(one) for one in to_all(json.dumps(seconds).encode(), messenger)]
    return [max(one) for one in zip(*everyones, strict=True)]
