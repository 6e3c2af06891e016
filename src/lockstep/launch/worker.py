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

from lockstep.disk import disk_errors_as_config_errors, silence_thread_errors
from lockstep.errors import TrainingInterrupted
from lockstep.launch.failure import delay_exit, note_of
from lockstep.launch.graceful_shutdown import FileRequest
from lockstep.launch.network_interface import name_interface
from lockstep.launch.peers import kill_stopped_peers, local_peer_pids, stopped_peer
from lockstep.launch.private_dir import hold_private_dir, remove_abandoned, writing_temporaries
from lockstep.launch.signals import unheeded
from lockstep.launch.store import Rendezvous, join
from lockstep.launch.topology import RankContext
from lockstep.streams import outlive_readers
from lockstep.world import Launchable, World

LOOPBACK_INTERFACE = "lo0" if sys.platform == "darwin" else "lo"


@dataclass(frozen=True)
class LaunchSpec:
    """All that a rank is handed: the work, the module whose `run(work, place)` is to do it, and where to meet.

    In `folder` lie the files by which the command asks ranks to stop.
    """

    work: Launchable
    engine: str
    rendezvous: Rendezvous
    folder: Path
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Done:
    """What the engine returned, as a rank tells the command: that of rank 0."""

    result: Any


def run_rank(rank: int, restarts: int, job: LaunchSpec, command: Connection, variables: Mapping[str, str]) -> None:
    """Entry of every rank that we start. Tells the command what the engine returned, or of an error.

    Args:
        restarts: how often the ranks have been started anew.
        command: the end of a pipe that leads there.
        variables: what the environment holds beside the command's own.
    """
    unheeded(job.folder)
    outlive_readers()
    exit_with_parent(job.folder.parent)
    world = job.work.world
    context = RankContext(rank, world.local_world_size, rank, world.local_world_size, restarts)
    apply_env({**job.environment, **variables}, context, job.rendezvous)
    peers: dict[int, int] = {}
    try:
        redirect_output(Path(world.folder), context)
        with writing_temporaries(job.folder), process_group(world, context, job.rendezvous) as store:
            peers |= local_peer_pids(store, context) if store else {}
            stop = FileRequest(job.folder, context.rank, context.world_size, store)
            result = run_engine(job.work, job.engine, replace(context, stop=stop))
    except Exception as error:
        cause = stopped_peer(error, world, peers) or error
        command.send(note_of(cause, rank))
        kill_stopped_peers(cause, peers)
        delay_exit(cause)
        raise SystemExit(1) from None
    command.send(Done(result if rank == 0 else None))


def run_engine(work: Launchable, engine: str, context: RankContext) -> Any:
    """Run the engine with the number of threads that its world gives each rank. What it returns, or Stopped.

    Raises:
        ConfigError: something cannot be, or the disk takes no more.
    """
    os.environ["OMP_NUM_THREADS"] = str(work.world.threads)  # Lightning sets its own number unless this is set
    torch.set_num_threads(work.world.threads)
    silence_thread_errors(work.world.folder)
    try:
        with disk_errors_as_config_errors(work.world.folder):
            return importlib.import_module(engine).run(work, context)
    except TrainingInterrupted as stopped:
        return stopped


@contextmanager
def process_group(world: World, context: RankContext, rendezvous: Rendezvous) -> Iterator[Store | None]:
    """The process group, where there is one, and the store at which it met.

    Lightning uses the group that it finds, so it opens no socket itself.
    """
    if world.accelerator == "gpu":
        torch.cuda.set_device(context.local_rank % torch.cuda.device_count())  # in turn, where ranks share
    if not world.distributed:
        yield None
        return
    if world.num_nodes == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK_INTERFACE)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", LOOPBACK_INTERFACE)
    else:
        name_interface(rendezvous.address or os.environ.get("MASTER_ADDR", ""))
    store = join(world, context, rendezvous)
    dist.init_process_group(
        world.backend,
        timeout=timedelta(seconds=world.process_group.timeout),
        store=store,
        rank=context.rank,
        world_size=context.world_size,
        # nccl then connects all ranks at once; else the first call would, and a ring's first call may leave ranks out
        device_id=torch.device("cuda", torch.cuda.current_device()) if world.backend == "nccl" else None,
    )
    yield store
    dist.destroy_process_group()  # after an error the peers may be gone: the process just ends


def apply_env(environment: Mapping[str, str], context: RankContext, rendezvous: Rendezvous) -> None:
    """The environment of the command now, which is not always what the fork server was started with, plus the place."""
    os.environ.clear()
    os.environ.update({**environment, **context.variables, **rendezvous.variables})


def redirect_output(run_dir: Path, context: RankContext) -> None:
    """Send what ranks above 0 print, C++ included, to ranks/<n>.log in the run's folder."""
    if context.rank == 0:
        return
    log = run_dir / "ranks" / f"{context.rank}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    with log.open("a") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def exit_with_parent(folder: Path) -> None:
    """End this process when the one that started the job is gone, however that went, and remove its private folder.

    Until then the folder is this process's, too. The kernel's parent is the fork server, which lives as long as its
    children: a thread waits for the real one.
    """
    hold_private_dir(folder)
    threading.Thread(target=_wait_for_parent, args=(folder,), daemon=True).start()


def _wait_for_parent(folder: Path) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        remove_abandoned(folder)
        os._exit(1)
