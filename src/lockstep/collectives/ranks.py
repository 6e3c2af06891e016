"""What each rank does on the tour: every primitive in turn on small tensors, and, if asked, the benchmark.

An error is caught where it is raised and told to the other ranks, over a group of its own: whether all ranks met it
(then the backend cannot do this) or only some (then the group is broken, and the tour ends there).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from lockstep.collectives.bench import Timing, measure
from lockstep.collectives.calls import own_device
from lockstep.collectives.entry import Primitive
from lockstep.collectives.primitives import PRIMITIVES
from lockstep.collectives.tour import Work
from lockstep.launch import RankContext
from lockstep.parallel import to_all


@dataclass(frozen=True)
class Seen:
    """What one rank held before and after a primitive; `error` is what was raised instead."""

    before: list[float]
    after: list[float]
    error: str = ""


@dataclass(frozen=True)
class Report:
    """What rank 0 hands back: for each primitive that was tried, what each rank saw; and the times."""

    seen: dict[str, list[Seen]]
    timings: list[Timing]


def run(work: Work, context: RankContext) -> Report:
    """The engine that the launcher calls on every rank, inside the process group."""
    return take_part(work, PRIMITIVES)


def take_part(work: Work, primitives: Sequence[Primitive]) -> Report:
    messenger = group_of_its_own(work.world.process_group.timeout)
    seen: dict[str, list[Seen]] = {}
    for primitive in primitives:
        if dist.get_world_size() < primitive.fewest_ranks:
            continue
        seen[primitive.name] = told_to_all(observe(primitive, work.tour.root), messenger)
        if broken(seen[primitive.name]):
            return Report(seen, [])
    can = [primitive for primitive in primitives if not any(one.error for one in seen.get(primitive.name, [GONE]))]
    return Report(seen, measure(can, work.tour.root, messenger) if work.tour.bench else [])


GONE = Seen([], [], "it was not tried")


def observe(primitive: Primitive, root: int) -> Seen:
    """One call on this rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    gives, takes = primitive.sizes(primitive.numbers(world), rank, world, root)
    given = torch.tensor([primitive.first(rank, index) for index in range(gives)], device=own_device())
    taken = None if takes is None else torch.zeros(takes, device=own_device())
    before: list[float] = given.tolist()
    try:
        primitive.call(given, taken, root)
        return Seen(before, (given if taken is None else taken).tolist())
    except RuntimeError as error:
        return Seen(before, [], str(error) or type(error).__name__)


def broken(ranks: Sequence[Seen]) -> bool:
    """Whether ranks no longer agree about the group: some met an error, or one that a peer's silence caused."""
    errors = [one.error for one in ranks if one.error]
    return bool(errors) and (len(errors) < len(ranks) or any(lost(error) for error in errors))


def lost(error: str) -> bool:
    return any(words in error.lower() for words in ("timed out", "timeout", "connection", "peer"))


def group_of_its_own(timeout: float) -> dist.ProcessGroup | None:
    """A second group of all ranks, where a primitive that goes wrong disturbs nothing; mpi's cannot be of gloo."""
    patience = timedelta(seconds=2 * timeout + 10)  # a peer may wait in the primitive for its whole timeout
    group = dist.new_group(backend="mpi" if dist.get_backend() == "mpi" else "gloo", timeout=patience)
    assert not isinstance(group, int), "this rank is a member"
    return group


def told_to_all(mine: Seen, messenger: dist.ProcessGroup | None) -> list[Seen]:
    """What a broken backend returns may be no number, and is shown as it is."""
    return [Seen(**json.loads(one)) for one in to_all(json.dumps(asdict(mine)).encode(), messenger)]
