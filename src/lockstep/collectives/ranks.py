"""What each rank does on the tour: every primitive in turn on small tensors, then the benchmark if it is asked for."""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from lockstep.collectives.benchmark import Timing, buffers, measure
from lockstep.collectives.primitives import ALL_BUT_OWN, PRIMITIVES, Primitive
from lockstep.launch.topology import RankContext
from lockstep.parallel.messages import all_gather_json
from lockstep.world import World

COUNT = 2
"""How many numbers the full tensor holds on the tour, or a share of it."""


@dataclass(frozen=True)
class TourPayload:
    """What the launcher hands to the ranks; `case` is one of failures.py."""

    world: World
    root: int = 0
    bench: bool = False
    case: str = ""


Observation = tuple[list[float], list[float]]
"""What one rank held before and after a primitive."""
TourResult = tuple[list[list[Observation]], list[Timing]]
"""The observations of all ranks for each primitive, and the timings."""


def run(payload: TourPayload, context: RankContext) -> TourResult:
    """Run the tour on this rank; the launcher calls it inside the process group."""
    observations = [all_gather_json(observe(primitive, payload.root)) for primitive in PRIMITIVES]
    return observations, measure(PRIMITIVES, payload.root) if payload.bench else []


def observe(primitive: Primitive, root: int) -> Observation:
    """Make one call on this rank. Each number is another: 10 and -11 on rank 0, 20 and -21 on rank 1."""
    input, output = buffers(primitive, tour_count(primitive, dist.get_world_size()))
    numbers = [(10 * dist.get_rank() + 10 + index) * (-1) ** index for index in range(len(input))]
    input += torch.tensor(numbers, device=input.device)
    before: list[float] = input.tolist()
    primitive.call(input, output, root)
    return before, output.tolist()


def tour_count(primitive: Primitive, world: int) -> int:
    """Return how many numbers the full tensor holds on the tour."""
    return COUNT * world if primitive.cost == ALL_BUT_OWN else COUNT
