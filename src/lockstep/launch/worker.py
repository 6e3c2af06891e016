"""The entry point of every rank that we start: join the process group, run the engine, report result or error."""

import gc
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from lockstep.disk import disk_errors_as_config_errors, silence_thread_errors, temporary_errors_as_config_errors
from lockstep.errors import TrainingInterrupted
from lockstep.launch.failure import delay_exit, note_of
from lockstep.launch.graceful_shutdown import FileRequest
from lockstep.launch.peers import kill_stopped_peers, local_peer_pids, stopped_peer
from lockstep.launch.process_group import process_group
from lockstep.launch.rank_process import apply_env, exit_with_parent, redirect_output
from lockstep.launch.signals import ignore_signals
from lockstep.launch.store import Rendezvous
from lockstep.launch.topology import RankContext
from lockstep.memory.garbage import collect_rarely
from lockstep.streams import outlive_readers
from lockstep.world import Launchable


@dataclass(frozen=True)
class LaunchSpec:
    """What a rank receives: the work, the engine (a module with `run(work, context)`), and the rendezvous.

    `folder` holds the files by which the command asks ranks to stop.
    """

    work: Launchable
    engine: str
    rendezvous: Rendezvous
    folder: Path
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Done:
    """A rank's report that it has finished; `result` is what rank 0's engine returned, None of other ranks."""

    result: Any


def run_rank(rank: int, restarts: int, job: LaunchSpec, command: Connection, variables: Mapping[str, str]) -> None:
    """Run one rank, and send a Done or a Note to the command.

    Args:
        restarts: how often all ranks have been restarted.
        command: the writing end of a pipe to the command.
        variables: environment variables beside the command's own.
    """
    gc.freeze()  # what was imported lives on: to look at it would copy the memory that is shared with the fork server
    gc.enable()  # the server has it off
    collect_rarely()
    ignore_signals(job.folder)
    outlive_readers()
    exit_with_parent(job.folder.parent)
    world = job.work.world
    context = RankContext(rank, world.local_world_size, rank, world.local_world_size, restarts)
    apply_env({**job.environment, **variables}, context, job.rendezvous)
    peers: dict[int, int] = {}
    try:
        redirect_output(Path(world.folder), context)
        with temporary_errors_as_config_errors(job.folder), process_group(world, context, job.rendezvous) as store:
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
    """Run the engine with its world's number of threads; returns its result, or TrainingInterrupted.

    Raises:
        ConfigError: invalid input that only a rank can see, or a full disk.
    """
    os.environ["OMP_NUM_THREADS"] = str(work.world.threads)  # Lightning sets its own number unless this is set
    torch.set_num_threads(work.world.threads)
    silence_thread_errors(work.world.folder)
    try:
        with disk_errors_as_config_errors(work.world.folder):
            return importlib.import_module(engine).run(work, context)
    except TrainingInterrupted as stopped:
        return stopped
