"""What each rank does on the tour: every primitive in turn on small tensors, then the benchmark if it is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist

from lockstep.collectives.calls import tensor_device
from lockstep.collectives.primitives import PRIMITIVES, Primitive
from lockstep.collectives.timing import Timing, all_gather, measure
from lockstep.launch.topology import RankContext
from lockstep.world import World


@dataclass(frozen=True)
class TourPayload:
    """What the launcher hands to the ranks; `case` is one of failures.py."""

    world: World
    root: int = 0
    bench: bool = False
    case: str = ""


class Observation(NamedTuple):
    """What one rank held before and after a primitive."""

    before: list[float]
    after: list[float]


@dataclass(frozen=True)
class TourResult:
    """The observations of all ranks for each primitive that has enough ranks, and the timings."""

    observations: dict[str, list[Observation]]
    timings: list[Timing]


def run(payload: TourPayload, context: RankContext) -> TourResult:
    """Run the tour on this rank; the launcher calls it inside the process group."""
    return take_tour(payload, PRIMITIVES)


def take_tour(payload: TourPayload, primitives: Sequence[Primitive]) -> TourResult:
    primitives = [primitive for primitive in primitives if dist.get_world_size() >= primitive.min_ranks]
    observations = {
        primitive.name: [Observation(*values) for values in all_gather(observe(primitive, payload.root))]
        for primitive in primitives
    }
    return TourResult(observations, measure(primitives, payload.root) if payload.bench else [])


def observe(primitive: Primitive, root: int) -> Observation:
    """Make one call on this rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    inputs, outputs = primitive.sizes(primitive.count(world), rank, world, root)
    input = torch.tensor([primitive.initial(rank, index) for index in range(inputs)], device=tensor_device())
    output = input if outputs is None else torch.zeros(outputs, device=tensor_device())
    before: list[float] = input.tolist()
    primitive.call(input, output, root)
    return Observation(before, output.tolist())
