"""What each rank does in a failure case: the wrong call, made on purpose, and the error that it raises."""

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
from lockstep.launch import RankContext
from lockstep.launch.rendezvous import Rendezvous, join
from lockstep.world import World

Group = dist.ProcessGroup | None


@dataclass(frozen=True)
class FailurePayload:
    """What the ranks of a case are handed."""

    world: World
    case: str


@dataclass(frozen=True)
class FailureCase:
    """`call(group, timeout)` is made on every rank; it is caught if the message that rank 0 reads matches `pattern`.

    None to call: the ranks go wrong before they form a group.
    """

    title: str
    call: Callable[[Group, float], object] | None
    pattern: str


def ones(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(count, dtype=dtype, device=own_device())


def is_last() -> bool:
    return dist.get_rank() == dist.get_world_size() - 1


def different_collectives(group: Group, timeout: float) -> None:
    if is_last():
        dist.broadcast(ones(4), src=0, group=group)
    else:
        dist.all_reduce(ones(4), group=group)


def invalid_peer(group: Group, timeout: float) -> None:
    """gloo reads beyond its list of peers: what it finds there crashes it, or never answers.

    Then torch's wait and gloo's own end at the same time, with words of their own.
    """
    if dist.get_rank() == 0:
        dist.send(ones(4), dst=dist.get_world_size() + 5)


def different_sizes(group: Group, timeout: float) -> None:
    if dist.get_rank() == 0:
        dist.send(ones(4), dst=1)
    elif dist.get_rank() == 1:
        dist.recv(ones(3), src=0)


def missing_rank(group: Group, timeout: float) -> None:
    if is_last():
        time.sleep(timeout + 1)
    else:
        dist.all_reduce(ones(4), group=group)


CASES = {
    "root": FailureCase(
        "broadcast from a root that does not exist",
        lambda group, _timeout: dist.broadcast(ones(4), src=dist.get_world_size() + 5, group=group),
        "root rank|Global rank",
    ),
    "shapes": FailureCase(
        "all-reduce of different shapes",
        lambda group, _timeout: dist.all_reduce(ones(3 if is_last() else 4), group=group),
        r"\[4\].*\[3\]",
    ),
    "dtypes": FailureCase(
        "all-reduce of different dtypes",
        lambda group, _timeout: dist.all_reduce(ones(4, torch.float64 if is_last() else torch.float32), group=group),
        "Float.*Double",
    ),
    "collectives": FailureCase("different collectives", different_collectives, "ALLREDUCE.*BROADCAST"),
    "peer": FailureCase(
        "send to a rank that does not exist (gloo crashes, or waits)", invalid_peer, "rank 0|Wait timeout|Timed out"
    ),
    "sizes": FailureCase("receive of another size than was sent (gloo crashes)", different_sizes, "rank 1"),
    "missing": FailureCase("the last rank does not call the all-reduce", missing_rank, "monitoredBarrier"),
    "joins": FailureCase("the last rank never joins the group", None, "did not join"),
}

CALLED = "called"
"""A file that the last rank to make the call has touched then: what a crashed rank can tell nobody."""

SLACK = 5.0
"""Seconds beyond its timeout after which a case counts as a hang."""


def run(payload: FailurePayload, context: RankContext) -> tuple[str, float]:
    """Called by the launcher on every rank: the message, and after how many seconds it came."""
    call, timeout = CASES[payload.case].call, payload.world.process_group.timeout
    message = "no error: the call returned"
    with exit_if_hung(timeout), silenced_stderr():
        group = debug_group(timeout) if call else None
        Path(payload.world.folder, CALLED).touch()
        began = time.monotonic()
        try:
            if call:
                call(group, timeout)
            else:
                never_join(payload.world, context)
        except (RuntimeError, ValueError) as error:
            message = " ".join(str(error).split()).replace("process_group.", "")
        return message, time.monotonic() - began


def never_join(world: World, context: RankContext) -> None:
    """What the launcher does on every rank before its work; the last rank does something else meanwhile."""
    if context.rank == context.world_size - 1:
        time.sleep(world.process_group.timeout + 1)
    else:
        join(world, context, Rendezvous(path=f"{world.folder}/group"))


def debug_group(timeout: float) -> Group:
    """All ranks once more, in a group that compares what they call. It returns when all are connected.

    A rank that fails at once and ends would break the group for one that still connects.
    """
    dist.set_debug_level(dist.DebugLevel.DETAIL)  # type: ignore[attr-defined]
    group = dist.new_group(timeout=timedelta(seconds=timeout))
    dist.barrier()
    assert not isinstance(group, int), "this rank is a member"
    return group


@contextmanager
def exit_if_hung(timeout: float) -> Iterator[None]:
    """The process ends soon after its timeout, also if torch never gives the interpreter back."""
    with Path(os.devnull).open("w") as nowhere:
        faulthandler.dump_traceback_later(timeout + SLACK, exit=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


@contextmanager
def silenced_stderr() -> Iterator[None]:
    """torch's C++ logs to file descriptor 2 as well, which would tear the report apart."""
    own = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
