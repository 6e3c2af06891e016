"""The code of a rank: take over the command's environment, join the process group, run the engine, and report.

A rank has a process of its own (`run_rank`), or this one (`run_in_process`): of torchrun or SLURM, or the only one of a
job, so that a debugger has the terminal. Numbers, files, errors and signals are the same.
"""

import gc
import importlib
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]

from lockstep.base.errors import TrainingInterrupted
from lockstep.base.private_api.cpython import release_forkserver
from lockstep.base.private_api.torch import default_store
from lockstep.base.random_state import preserve_generators
from lockstep.base.streams import outlive_readers
from lockstep.launch import collect_rarely
from lockstep.launch.disk import disk_errors_as_config_errors, silence_thread_errors
from lockstep.launch.failure import LOST_PEER, OWN_ERROR, delay_exit, failure_report, kind_of, root_error
from lockstep.launch.rendezvous import interface_towards, join
from lockstep.launch.signals import (
    COALESCE,
    SHUTDOWN_TIMEOUT,
    first_signal_requests_stop,
    ignore_signals,
    signal_handlers,
)
from lockstep.launch.topology import Flags, LaunchSpec, RankContext, Stop
from lockstep.plan.targets.frames import UserCodeError
from lockstep.plan.world import Launchable, World


def run_rank(rank: int, job: LaunchSpec, command: Connection) -> None:
    """Run one rank; send what rank 0's engine returns, None from other ranks, or a FailureReport to the command."""
    gc.freeze()  # a collection would visit imported objects, and copy the memory that is shared with the fork server
    gc.enable()  # the server has it off
    collect_rarely()
    world, pid = job.work.world, os.getpid()
    context = RankContext(rank, world.local_world_size, rank, world.local_world_size)
    ignore_signals()
    outlive_readers()
    release_forkserver()  # which ends with the command, and its ranks with it
    os.environ.clear()  # the fork server's, as old as the server
    os.environ.update({**job.environment, **context.variables})
    # torch creates it in TMPDIR, where another user could have done so
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(job.group_file.parent / "torchinductor"))
    status = 1
    try:
        if rank > 0:  # what it prints, C++ included
            (log := Path(world.folder, "ranks", f"{rank}.log")).parent.mkdir(parents=True, exist_ok=True)
            with log.open("a") as stream:
                os.dup2(stream.fileno(), 1)
                os.dup2(stream.fileno(), 2)
        if job.main is not None:
            vars(sys.modules["__main__"]).update(pickle.loads(job.main))
        with process_group(world, context, job.group_file) as store:
            result = run_engine(job.work, job.engine, context, job.flags, store)
        command.send(result if rank == 0 else None)
        status = 0
    except BaseException as error:  # sys.exit, too, and a KeyboardInterrupt of the user's code
        if os.getpid() != pid:  # a fork of the user's code ends
            raise
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler raises, as soon as a loader's worker has died
        report = failure_report(error, rank)
        with suppress(BrokenPipeError):  # a command that was killed
            command.send(report)
        if report.kind != OWN_ERROR:  # the cause is another rank's failure, or what it waits in
            delay_exit()
        raise SystemExit(1) from None
    finally:  # Python would wait for threads of the user's code
        watchdog = threading.Timer(SHUTDOWN_TIMEOUT, os._exit, [status])
        watchdog.daemon = True
        watchdog.start()


def run_engine(work: Launchable, engine: str, context: RankContext, flags: Flags, store: Store) -> Any:
    """Run the engine with its world's number of threads; return its result, or TrainingInterrupted.

    Raise the engine's error, even if that of a teardown hides it. By `store` the ranks agree on where to stop.
    """
    os.environ["OMP_NUM_THREADS"] = str(work.world.threads)  # Lightning sets its own number unless this is set
    torch.set_num_threads(work.world.threads)
    context = replace(context, stop=Stop(flags, context.rank, context.world_size, store))
    silence_thread_errors()
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
def process_group(world: World, context: RankContext, path: Path | None = None) -> Iterator[Store]:
    """Join the process group at a file, unless there is one or none is needed; yield a store of all its ranks."""
    if world.accelerator == "gpu":
        torch.cuda.set_device(context.local_rank % torch.cuda.device_count())  # in turn, where ranks share
    if path is None or not world.distributed:
        yield default_store() if dist.is_initialized() else HashStore()
        return
    if interface := "lo" if world.num_nodes == 1 else interface_towards(os.environ["MASTER_ADDR"]):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")  # without the sign a prefix is meant
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


class EndedBySignal(SystemExit):
    """Raised by a signal handler, unlike the SystemExit of a `sys.exit` in the user's code."""


def raise_exit(number: int, _frame: FrameType | None) -> NoReturn:
    """End by an exception, so that the prompt of a debugger restores its terminal."""
    raise EndedBySignal(128 + number)


def run_in_process(work: Launchable, engine: str, launched: RankContext | None) -> tuple[Any, list[int]]:
    """Return what the engine returns, or TrainingInterrupted; and the signals that requested a stop here.

    launched: the rank that torchrun or SLURM started, whose errors `external_process_group` reports. Such a launcher
        may send several signals, and kills a rank that does not stop.
    """
    context, flags = launched or RankContext(0, 1, 0, 1), bytearray(2)
    with (
        restored_process(),
        nullcontext() if launched else signal_handlers(raise_exit),
        first_signal_requests_stop(flags, SHUTDOWN_TIMEOUT if launched else COALESCE) as stops,
    ):
        os.environ.update(context.variables)
        try:
            with process_group(work.world, context) as store:
                return run_engine(work, engine, context, flags, store), stops
        except BaseException as error:
            if launched and stops and kind_of(error) == LOST_PEER:
                raise SystemExit(128 + stops[0]) from None  # the same signal ended the peer
            if launched or isinstance(error, UserCodeError | EndedBySignal):
                raise
            raise failure_report(error, context.rank).error from None


@contextmanager
def restored_process() -> Iterator[None]:
    """Restore what a rank changes: it expects a process of its own, which ends with it."""
    environment, threads, dtype = dict(os.environ), torch.get_num_threads(), torch.get_default_dtype()
    deterministic = torch.get_deterministic_debug_mode()
    gpus = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    devices = gpus if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings(), preserve_generators(devices):
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_deterministic_debug_mode(deterministic)
