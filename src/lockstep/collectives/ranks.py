"""What each rank does on the tour: every primitive in turn on small tensors, then, if asked, the benchmark.

An error is caught where it is raised, and sent to the other ranks over a group of its own: if all ranks have it, the
backend can't do this; if only some have it, the group is broken, and the tour ends there.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from lockstep.collectives.calls import own_device
from lockstep.collectives.primitives import PRIMITIVES, Primitive
from lockstep.collectives.timing import Timing, all_gather, measure
from lockstep.launch.topology import RankContext
from lockstep.world import World


@dataclass(frozen=True)
class TourPayload:
    """What the ranks of the tour are handed."""

    world: World
    root: int = 0
    bench: bool = False


@dataclass(frozen=True)
class Observation:
    """What one rank held before and after a primitive; `error` is what was raised instead."""

    before: list[float]
    after: list[float]
    error: str = ""


@dataclass(frozen=True)
class TourResult:
    """What rank 0 returns: for each primitive that was tried an observation of each rank; and the times."""

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
            ranks = all_gather(asdict(observe(primitive, payload.root)), group)
            observations[primitive.name] = [Observation(**rank) for rank in ranks]
            if broken(observations[primitive.name]):
                return TourResult(observations, [])
    able = [one for one in primitives if one.name in observations and not observations[one.name][0].error]
    return TourResult(observations, measure(able, payload.root, group) if payload.bench else [])


def observe(primitive: Primitive, root: int) -> Observation:
    """One call on this rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    inputs, outputs = primitive.sizes(primitive.count(world), rank, world, root)
    input = torch.tensor([primitive.initial(rank, index) for index in range(inputs)], device=own_device())
    output = input if outputs is None else torch.zeros(outputs, device=own_device())
    before: list[float] = input.tolist()
    try:
        primitive.call(input, output, root)
        return Observation(before, output.tolist())
    except RuntimeError as error:
        return Observation(before, [], str(error) or type(error).__name__)


def broken(ranks: Sequence[Observation]) -> bool:
    """Whether the group is unusable: only some ranks have an error, or one that a silent peer causes."""
    errors = [one.error.lower() for one in ranks if one.error]
    lost = any(word in error for error in errors for word in ("timed out", "timeout", "connection", "peer"))
    return lost or 0 < len(errors) < len(ranks)


def control_group(timeout: float) -> dist.ProcessGroup | None:
    """A second group of all ranks, which a primitive that fails doesn't disturb; mpi's can't be of gloo."""
    patience = timedelta(seconds=2 * timeout + 10)  # a peer may wait in the primitive for its whole timeout
    group = dist.new_group(backend="mpi" if dist.get_backend() == "mpi" else "gloo", timeout=patience)
    assert not isinstance(group, int), "this rank is a member"
    return group
