"""The code of a rank: take over the command's environment, join the process group, run the engine, and report."""

import faulthandler
import gc
import importlib
import os
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from lockstep.base.disk import disk_errors_as_config_errors, silence_thread_errors
from lockstep.base.errors import TrainingInterrupted
from lockstep.base.messages import all_gather_bytes
from lockstep.base.private_api.cpython import release_forkserver
from lockstep.base.private_api.torch import default_store
from lockstep.base.streams import outlive_readers
from lockstep.launch import collect_rarely
from lockstep.launch.failure import DUMP_SIGNAL, OWN_ERROR, delay_exit, failure_report, root_error
from lockstep.launch.rendezvous import interface_towards, join
from lockstep.launch.signals import ignore_signals
from lockstep.launch.topology import RankContext, Stop
from lockstep.plan.schemas.plan_json import from_json, to_json
from lockstep.plan.world import Launchable, World


@dataclass(frozen=True)
class LaunchSpec:
    """The input of a rank: the work, the engine (a module with `run(work, context)`), and the file where ranks meet.

    folder: of the job, with the files by which the command asks ranks to stop.
    main: the pickled objects of the command's `__main__` that the work names.
    """

    work: Launchable
    engine: str
    group_file: Path
    folder: Path
    environment: Mapping[str, str]
    main: bytes | None = None
    restarts: int = 0


def run_rank(rank: int, job: LaunchSpec, command: Connection) -> None:
    """Run one rank; send what rank 0's engine returns, None from other ranks, or a FailureReport to the command."""
    gc.freeze()  # a collection would visit imported objects, and copy the memory that is shared with the fork server
    gc.enable()  # the server has it off
    collect_rarely()
    world = job.work.world
    pid = os.getpid()
    context = RankContext(rank, world.local_world_size, rank, world.local_world_size, job.restarts)
    variables = {**job.environment, **context.variables}
    if world.start == "elastic":  # by these variables torch and Lightning recognize ranks that can be restarted
        variables |= {"TORCHELASTIC_RUN_ID": job.folder.name, "TORCHELASTIC_RESTART_COUNT": str(job.restarts)}
    ignore_signals()
    outlive_readers()
    release_forkserver()  # which ends with the command, and its ranks with it
    os.environ.clear()  # the fork server's, as old as the server
    os.environ.update(variables)
    faulthandler.register(DUMP_SIGNAL, (job.folder / f"stack-{rank}").open("w"), all_threads=False)
    try:
        redirect_output(Path(world.folder), context)
        if job.main is not None:
            from lockstep.plan.targets.from_python import restore_main

            restore_main(job.main)
        with process_group(world, context, job.group_file) as store:
            result = run_engine(job.work, job.engine, context, job.folder, store)
    except BaseException as error:  # sys.exit, too, and a KeyboardInterrupt of the user's code
        if os.getpid() != pid:  # a fork of the user's code ends
            raise
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler raises, as soon as a loader's worker has died
        report = failure_report(error, rank)
        command.send(report)
        if report.kind != OWN_ERROR:  # the cause is another rank's failure, or what it waits in
            delay_exit()
        raise SystemExit(1) from None
    command.send(result if rank == 0 else None)


def agreed(work: Launchable) -> Launchable:
    """Return rank 0's work: every rank has composed its own plan, and the clock names the run's folder."""
    return from_json(all_gather_bytes(to_json(work).encode())[0].decode()) if dist.is_initialized() else work


def run_engine(work: Launchable, engine: str, context: RankContext, folder: Path, store: Store | None) -> Any:
    """Run the engine with its world's number of threads; return its result, or TrainingInterrupted.

    Args:
        folder: of the job; torch's caches go beside it, since another user could create the usual folder.
        store: of all ranks, by which they agree on where to stop.

    Raises:
        BaseException: the engine's error, even if that of a teardown hides it; a ConfigError for a full disk.
    """
    os.environ["OMP_NUM_THREADS"] = str(work.world.threads)  # Lightning sets its own number unless this is set
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder.parent / "torchinductor"))
    torch.set_num_threads(work.world.threads)
    context = replace(context, stop=Stop(folder, context.rank, context.world_size, store))
    silence_thread_errors(work.world.folder)
    try:
        with disk_errors_as_config_errors(work.world.folder):
            return importlib.import_module(engine).run(work, context)
    except BaseException as error:
        cause = root_error(error)
        if isinstance(cause, TrainingInterrupted):
            return cause
        if cause is error:
            raise
        raise cause from None


@contextmanager
def process_group(world: World, context: RankContext, path: Path) -> Iterator[Store | None]:
    """Join the process group at a file and yield its store; a world that is not distributed has neither."""
    if world.accelerator == "gpu":
        torch.cuda.set_device(context.local_rank % torch.cuda.device_count())  # in turn, where ranks share
    if not world.distributed:
        yield None
        return
    if interface := "lo" if world.num_nodes == 1 else interface_towards(os.environ["MASTER_ADDR"]):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")  # without the sign a prefix is meant
    if dist.is_initialized():  # by the program that calls `run`, which goes on using the group and its store
        yield PrefixStore(all_gather_bytes(secrets.token_bytes())[0].hex(), default_store())
        return
    store = join(world, context, path)
    dist.init_process_group(
        world.backend,
        timeout=timedelta(seconds=world.process_group.timeout),
        store=store,
        rank=context.rank,
        world_size=context.world_size,
        # nccl then connects all ranks at once; else the first call does, and a ring's first call need not involve all
        device_id=torch.device("cuda", torch.cuda.current_device()) if world.backend == "nccl" else None,
    )
    dist.barrier()  # this rank is connected; one that still connects would fail if this one ended meanwhile
    yield store
    dist.destroy_process_group()  # after an error the peers may be gone: the process just ends


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
