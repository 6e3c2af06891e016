"""What each rank does on the tour: every primitive in turn on small tensors, then the benchmark if it is asked for.

An error is caught where it is raised and sent to the other ranks over a second group. If all ranks have it, the backend
does not support the primitive; if only some have it, the group is broken and the tour ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
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
    """What one rank held before and after a primitive, and the error that was raised."""

    before: list[float]
    after: list[float]
    error: str = ""


@dataclass(frozen=True)
class TourResult:
    """The observations of all ranks for each primitive that was tried, and the timings."""

    observations: dict[str, list[Observation]]
    timings: list[Timing]


def run(payload: TourPayload, context: RankContext) -> TourResult:
    """Run the tour on this rank; the launcher calls it inside the process group."""
    return take_tour(payload, PRIMITIVES)


def take_tour(payload: TourPayload, primitives: Sequence[Primitive]) -> TourResult:
    group = control_group(payload.world.process_group.timeout)
    observations: dict[str, list[Observation]] = {}
    for primitive in primitives:
        if dist.get_world_size() >= primitive.min_ranks:
            ranks = [Observation(*values) for values in all_gather(observe(primitive, payload.root), group)]
            observations[primitive.name] = ranks
            if is_broken(ranks):
                return TourResult(observations, [])
    supported = [primitive for primitive in primitives if primitive.name in observations]
    supported = [primitive for primitive in supported if not observations[primitive.name][0].error]
    return TourResult(observations, measure(supported, payload.root, group) if payload.bench else [])


def observe(primitive: Primitive, root: int) -> Observation:
    """Make one call on this rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    inputs, outputs = primitive.sizes(primitive.count(world), rank, world, root)
    input = torch.tensor([primitive.initial(rank, index) for index in range(inputs)], device=tensor_device())
    output = input if outputs is None else torch.zeros(outputs, device=tensor_device())
    before: list[float] = input.tolist()
    try:
        primitive.call(input, output, root)
        return Observation(before, output.tolist())
    except RuntimeError as error:
        return Observation(before, [], str(error) or type(error).__name__)


def is_broken(ranks: Sequence[Observation]) -> bool:
    """Whether the group is unusable: only some ranks have an error, or one that a silent peer causes."""
    errors = [rank.error.lower() for rank in ranks if rank.error]
    lost = any(word in error for error in errors for word in ("timed out", "timeout", "connection", "peer"))
    return lost or 0 < len(errors) < len(ranks)


def control_group(timeout: float) -> dist.ProcessGroup | None:
    """Create a second group of all ranks, which a primitive that fails does not disturb; mpi cannot mix with gloo."""
    patience = timedelta(seconds=2 * timeout + 10)  # a peer may wait in the primitive for its full timeout
    group = dist.new_group(backend="mpi" if dist.get_backend() == "mpi" else "gloo", timeout=patience)
    assert not isinstance(group, int), "this rank is a member"
    return group
