"""The script as a rank that torchrun or SLURM started: it takes the place it was given and starts nothing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]
from torch.distributed.elastic.multiprocessing.errors import record

from lockstep.ending import Ending, PeerStopped
from lockstep.launch.agent import end_if_cut_off
from lockstep.launch.failure import linger, told
from lockstep.launch.meeting import opened_outside
from lockstep.launch.peers import beside, end_the_stopped, stopped_peer
from lockstep.launch.place import Place, rendezvous_variables
from lockstep.launch.stop import SignalRequest
from lockstep.launch.worker import group, quiet_unless_first, run_engine
from lockstep.refusal import Refusal
from lockstep.world import Startable, World

Work = TypeVar("Work", bound=Startable)


@dataclass
class Member:
    """What this process knows as a member of the group: where it met, and the processes of its machine's ranks."""

    store: Store | None = None
    peers: dict[int, int] = field(default_factory=dict)


MEMBER = Member()


@contextmanager
def membership(world: World, place: Place) -> Iterator[None]:
    """Hold this process's place in the group while the job runs: groups cannot be met twice at torchrun's store."""
    os.environ.update({**place.variables, **rendezvous_variables(os.environ)})
    with own_end(world, place), opened_outside(world, place) as meeting, group(world, place, meeting) as store:
        MEMBER.store, MEMBER.peers = store, beside(store, place) if store else {}
        yield


def work_as_guest(work: Startable, engine: str, place: Place) -> Any:
    """Run the engine in this process, which is a member of the group."""
    with own_end(work.world, place):
        work = work_of_rank_zero(work)
        quiet_unless_first(Path(work.world.folder), place)
        stop = SignalRequest(place.rank, place.world_size, MEMBER.store)
        return record(run_noted)(work, engine, replace(place, stop=stop))


def run_noted(work: Startable, engine: str, place: Place) -> Any:
    """Run the engine. To the words of torch for an answer that never came is added what that means between machines."""
    try:
        return run_engine(work, engine, place)
    except Exception as error:
        if work.world.num_nodes > 1 and "timed out" in str(error).lower():
            limit = f"{work.world.process_group.timeout:g} s (process_group.timeout)"
            error.add_note(f"A rank on another machine, or the link to it, did not answer within {limit}.")
        raise


@contextmanager
def own_end(world: World, place: Place) -> Iterator[None]:
    """An error is the rank's end, with exit status 1.

    torchrun prints the traceback of the first rank that failed, from the file that `record` leaves it; others do not,
    nor does a torchrun that is cut off, so there the rank prints its own.
    """
    terminal, parent = os.dup(2), os.getppid()
    try:
        yield
    except Refusal:
        raise
    except Exception as error:
        cause = stopped_peer(error, world, MEMBER.peers) or error
        linger(cause)
        alone = world.num_nodes > 1 and end_if_cut_off(parent, place.local_rank)
        if alone or "TORCHELASTIC_ERROR_FILE" not in os.environ or isinstance(cause, Ending):
            rank = cause.rank if isinstance(cause, PeerStopped) else place.rank
            os.write(terminal, f"rank {rank} failed: {told(cause)}\n".encode())
        end_the_stopped(cause, MEMBER.peers)
        raise SystemExit(1) from None
    finally:
        os.close(terminal)


def work_of_rank_zero(work: Work) -> Work:
    """Every rank composed work of its own; rank 0's counts, above all its folder, which is named by the clock."""
    if not dist.is_initialized():
        return work
    works = [work]
    dist.broadcast_object_list(works)
    return works[0]
