"""The script as a rank that torchrun or SLURM started: it takes the place it was given and starts nothing."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.ending import PeerStopped, Stopped
from lockstep.launch.agent import end_if_cut_off
from lockstep.launch.failure import linger, lost_a_peer, told
from lockstep.launch.meeting import opened_outside
from lockstep.launch.peers import beside, end_the_stopped, limit, stopped_peer, timed_out
from lockstep.launch.place import Place, rendezvous_variables
from lockstep.launch.private_dir import own_caches, remove_private_folder
from lockstep.launch.signals import ends_rank
from lockstep.launch.stop import SignalRequest
from lockstep.launch.worker import group, quiet_unless_first, run_engine
from lockstep.parallel import from_first
from lockstep.refusal import Refusal
from lockstep.typed import restored
from lockstep.world import Startable, World

Work = TypeVar("Work", bound=Startable)


@dataclass
class Member:
    """What this process knows as a member of the group: where it met, and the processes of its machine's ranks."""

    store: Store | None = None
    peers: dict[int, int] = field(default_factory=dict)


MEMBER = Member()

LOOK = 0.5
"""Seconds between two looks at whether torchrun's agent is there."""


@contextmanager
def membership(world: World, place: Place) -> Iterator[None]:
    """Hold this process's place in the group while the job runs: groups cannot be met twice at torchrun's store."""
    end_with_agent()
    with ends_rank():
        os.environ.update({**own_caches(), **os.environ, **place.variables, **rendezvous_variables(os.environ)})
        with own_end(world, place), opened_outside(world, place) as meeting, group(world, place, meeting) as store:
            MEMBER.store, MEMBER.peers = store, beside(store, place) if store else {}
            yield


def work_as_guest(work: Startable, engine: str, place: Place) -> Any:
    """Run the engine in this process, which is a member of the group."""
    with own_end(work.world, place):
        work = work_of_rank_zero(work)
        quiet_unless_first(Path(work.world.folder), place)
        stop = SignalRequest(place.rank, place.world_size, MEMBER.store)
        try:
            result = run_engine(work, engine, replace(place, stop=stop))
            if isinstance(result, Stopped):
                result.number = stop.number
            return result
        except Exception as error:
            if stop.heeded and lost_a_peer(error):
                raise SystemExit(128 + stop.number) from None  # whoever ended the peer has told this rank, too
            if work.world.num_nodes > 1 and timed_out(error):
                error.add_note(
                    f"A rank on another machine, or the link to it, did not answer within {limit(work.world)}."
                )
            raise


@contextmanager
def own_end(world: World, place: Place) -> Iterator[None]:
    """An error is the rank's end, with exit status 1."""
    terminal, parent = os.dup(2), os.getppid()
    try:
        yield
    except Refusal:
        raise
    except Exception as error:
        cause = stopped_peer(error, world, MEMBER.peers) or error
        linger(cause)
        alone = world.num_nodes > 1 and end_if_cut_off(parent, place.local_rank)
        report(cause, place, terminal, in_print=alone)
        end_the_stopped(cause, MEMBER.peers)
        raise SystemExit(1) from None
    finally:
        os.close(terminal)


def end_with_agent() -> None:
    """End this rank when torchrun's agent is gone, however that went: nobody else would."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    agent = os.getppid()

    def look() -> None:
        while os.getppid() == agent:
            time.sleep(LOOK)
        remove_private_folder()
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


def report(error: Exception, place: Place, terminal: int, in_print: bool) -> None:
    """Why this rank ends: in the file from which torchrun's own report takes it; others have none, so there in print.

    torchrun calls the earliest failure the cause, by whole seconds. A rank that only lost a peer has lingered until
    here, so it has been ended before it could leave a file; one that ends a peer was the first to know.
    """
    blamed = error.rank if isinstance(error, PeerStopped) else place.rank
    said = f"rank {blamed} failed: {told(error)}"
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if file is None or in_print:  # a torchrun that is cut off reports nothing
        os.write(terminal, f"{said}\n".encode())
    else:
        extra = {"py_callstack": said, "timestamp": str(int(time.time()) - (blamed != place.rank))}
        Path(file).write_text(json.dumps({"message": {"message": said, "extraInfo": extra}}))


def work_of_rank_zero(work: Work) -> Work:
    """Every rank composed work of its own; rank 0's counts, above all its folder, which is named by the clock."""
    if not dist.is_initialized():
        return work
    return restored(type(work), json.loads(from_first(json.dumps(asdict(work)).encode())))
