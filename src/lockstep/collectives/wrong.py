"""What each rank does in a mistake: the wrong call, made on purpose, and the error that comes of it."""

import faulthandler
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from lockstep.collectives.calls import own_device
from lockstep.collectives.checked import checked_recv, checked_send
from lockstep.collectives.reading import sentence
from lockstep.launch import RankContext
from lockstep.launch.store import Rendezvous, join
from lockstep.world import World

Group = dist.ProcessGroup | None


@dataclass(frozen=True)
class Work:
    """One mistake, and the world in which it is made."""

    mistake: str
    world: World


@dataclass(frozen=True)
class Caught:
    """What rank 0 was told and after how long; not `caught`: not that, nothing, or the rank died of it."""

    reads: str
    seconds: float
    caught: bool


@dataclass(frozen=True)
class Wrong:
    """`make(group, timeout)` is called on every rank; it is caught where what rank 0 reads has all words of `names`.

    None to make: the ranks go wrong before they form a group.
    """

    done: str
    make: Callable[[Group, float], None] | None
    names: tuple[str, ...]

    @property
    def joined(self) -> bool:
        return self.make is not None


def numbers(count: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(count, dtype=kind, device=own_device())


def last() -> bool:
    return dist.get_rank() == dist.get_world_size() - 1


def root_out_of_range(group: Group, timeout: float) -> None:
    dist.broadcast(numbers(4), src=dist.get_world_size() + 5, group=group)


def peer_out_of_range(group: Group, timeout: float) -> None:
    """torch's own send ends the process by a segmentation fault here."""
    checked_send(numbers(4), dst=dist.get_world_size() + 5)


def other_shapes(group: Group, timeout: float) -> None:
    dist.all_reduce(numbers(3 if last() else 4), group=group)


def other_types(group: Group, timeout: float) -> None:
    dist.all_reduce(numbers(4, torch.float64 if last() else torch.float32), group=group)


def other_collectives(group: Group, timeout: float) -> None:
    if last():
        dist.broadcast(numbers(4), src=0, group=group)
    else:
        dist.all_reduce(numbers(4), group=group)


def other_sizes(group: Group, timeout: float) -> None:
    """gloo's own receive ends the process here, by SIGABRT."""
    if dist.get_rank() == 0:
        checked_send(numbers(4), dst=1)
    elif dist.get_rank() == 1:
        checked_recv(numbers(3), src=0)


def stays_away(group: Group, timeout: float) -> None:
    if last():
        time.sleep(timeout + 1)
    else:
        dist.all_reduce(numbers(4), group=group)


WRONG = {
    "root": Wrong("broadcast from a root that does not exist", root_out_of_range, ("root=", "no such rank")),
    "peer": Wrong("send to a rank that does not exist", peer_out_of_range, ("dst=", "no such rank")),
    "shapes": Wrong("all-reduce of other shapes on other ranks", other_shapes, ("[4]", "[3]")),
    "types": Wrong("all-reduce of other dtypes on other ranks", other_types, ("float32", "float64")),
    "collectives": Wrong("other collectives on other ranks", other_collectives, ("allreduce", "broadcast")),
    "sizes": Wrong("receive of another size than was sent", other_sizes, ("sends 4", "awaits 3")),
    "away": Wrong("the last rank stays away from an all-reduce", stays_away, ("stayed away",)),
    "joins": Wrong("the last rank never joins the group", None, ("did not join",)),
}

SLACK = 5.0
"""Seconds beyond its limit that a mistake may take before it counts as a hang."""


def run(work: Work, context: RankContext) -> Caught:
    """The engine: make the mistake, and say what came of it."""
    wrong, limit = WRONG[work.mistake], work.world.process_group.timeout
    with ended_if_it_hangs(limit), silent():
        group = debug_group(limit) if wrong.joined else None
        began = time.monotonic()
        try:
            if wrong.make is not None:
                wrong.make(group, limit)
            else:
                never_join(work.world, context)
        except (RuntimeError, ValueError) as error:
            reads = sentence(str(error), context.world_size, limit)
            return Caught(reads, time.monotonic() - began, all(words in reads for words in wrong.names))
        return Caught("nothing: the call went through", time.monotonic() - began, False)


def never_join(world: World, context: RankContext) -> None:
    """What the launcher does on every rank before its work; the last rank does something else meanwhile."""
    if context.rank == context.world_size - 1:
        time.sleep(world.process_group.timeout + 1)
    else:
        Path(world.folder).mkdir(parents=True, exist_ok=True)
        join(world, context, Rendezvous(path=f"{world.folder}/group"))


def debug_group(timeout: float) -> Group:
    """All ranks once more, in a group that compares what they call."""
    dist.set_debug_level(dist.DebugLevel.DETAIL)  # type: ignore[attr-defined]
    group = dist.new_group(timeout=timedelta(seconds=timeout))
    assert not isinstance(group, int), "this rank is a member"
    return group


@contextmanager
def ended_if_it_hangs(limit: float) -> Iterator[None]:
    """Whatever happens, the process ends soon after its limit, also if torch never gives the interpreter back."""
    with Path(os.devnull).open("w") as nowhere:
        faulthandler.dump_traceback_later(limit + SLACK, exit=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


@contextmanager
def silent() -> Iterator[None]:
    """torch's C++ logs its part of the story to the terminal; the table has it in a sentence."""
    terminal, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)
