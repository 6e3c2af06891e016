"""What a rank does from its start to its end: take its place, join the group, let the engine run, report."""

import importlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.disk import hush_threads, writing_below
from lockstep.ending import Stopped
from lockstep.launch.failure import linger, note_of
from lockstep.launch.interface import name_interface
from lockstep.launch.peers import beside, end_the_stopped, stopped_peer
from lockstep.launch.place import Place
from lockstep.launch.private_dir import held, remove_abandoned, writing_temporaries
from lockstep.launch.signals import unheeded
from lockstep.launch.stop import FileRequest
from lockstep.launch.store import Meeting, join
from lockstep.streams import outlive_readers
from lockstep.world import Startable, World

LOOPBACK_INTERFACE = "lo0" if sys.platform == "darwin" else "lo"


@dataclass(frozen=True)
class Job:
    """All that a rank is handed: the work, the module whose `run(work, place)` is to do it, and where to meet.

    In `folder` lie the files by which the command asks ranks to stop.
    """

    work: Startable
    engine: str
    meeting: Meeting
    folder: Path
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Done:
    """What the engine returned, as a rank tells the command: that of rank 0."""

    result: Any


def run_rank(rank: int, restarts: int, job: Job, command: Connection, variables: Mapping[str, str]) -> None:
    """Entry of every rank that we start. Tells the command what the engine returned, or of an error.

    Args:
        restarts: how often the ranks have been started anew.
        command: the end of a pipe that leads there.
        variables: what the environment holds beside the command's own.
    """
    unheeded(job.folder)
    outlive_readers()
    end_with_parent(job.folder.parent)
    world = job.work.world
    place = Place(rank, world.local_world_size, rank, world.local_world_size, restarts)
    adopt({**job.environment, **variables}, place, job.meeting)
    peers: dict[int, int] = {}
    try:
        quiet_unless_first(Path(world.folder), place)
        with writing_temporaries(job.folder), group(world, place, job.meeting) as store:
            peers |= beside(store, place) if store else {}
            stop = FileRequest(job.folder, place.rank, place.world_size, store)
            result = run_engine(job.work, job.engine, replace(place, stop=stop))
    except Exception as error:
        cause = stopped_peer(error, world, peers) or error
        command.send(note_of(cause, rank))
        end_the_stopped(cause, peers)
        linger(cause)
        raise SystemExit(1) from None
    command.send(Done(result if rank == 0 else None))


def run_engine(work: Startable, engine: str, place: Place) -> Any:
    """Run the engine with the number of threads that its world gives each rank. What it returns, or Stopped.

    Raises:
        Refusal: something cannot be, or the disk takes no more.
    """
    os.environ["OMP_NUM_THREADS"] = str(work.world.threads)  # Lightning sets its own number unless this is set
    torch.set_num_threads(work.world.threads)
    hush_threads(work.world.folder)
    try:
        with writing_below(work.world.folder):
            return importlib.import_module(engine).run(work, place)
    except Stopped as stopped:
        return stopped


@contextmanager
def group(world: World, place: Place, meeting: Meeting) -> Iterator[Store | None]:
    """The process group, where there is one, and the store at which it met.

    Lightning uses the group that it finds, so it opens no socket itself.
    """
    if world.accelerator == "gpu":
        torch.cuda.set_device(place.local_rank % torch.cuda.device_count())  # in turn, where ranks share
    if not world.joined:
        yield None
        return
    if world.num_nodes == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK_INTERFACE)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", LOOPBACK_INTERFACE)
    else:
        name_interface(meeting.address or os.environ.get("MASTER_ADDR", ""))
    store = join(world, place, meeting)
    dist.init_process_group(
        world.backend,
        timeout=timedelta(seconds=world.process_group.timeout),
        store=store,
        rank=place.rank,
        world_size=place.world_size,
        # nccl then connects all ranks at once; else the first call would, and a ring's first call may leave ranks out
        device_id=torch.device("cuda", torch.cuda.current_device()) if world.backend == "nccl" else None,
    )
    yield store
    dist.destroy_process_group()  # after an error the peers may be gone: the process just ends


def adopt(environment: Mapping[str, str], place: Place, meeting: Meeting) -> None:
    """The environment of the command now, which is not always what the fork server was started with, plus the place."""
    os.environ.clear()
    os.environ.update({**environment, **place.variables, **meeting.variables})


def quiet_unless_first(run_dir: Path, place: Place) -> None:
    """Send what ranks above 0 print, C++ included, to ranks/<n>.log in the run's folder."""
    if place.rank == 0:
        return
    log = run_dir / "ranks" / f"{place.rank}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    with log.open("a") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def end_with_parent(folder: Path) -> None:
    """End this process when the one that started the job is gone, however that went, and remove its private folder.

    Until then the folder is this process's, too. The kernel's parent is the fork server, which lives as long as its
    children: a thread waits for the real one.
    """
    held(folder)
    threading.Thread(target=_outlive_nobody, args=(folder,), daemon=True).start()


def _outlive_nobody(folder: Path) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        remove_abandoned(folder)
        os._exit(1)
