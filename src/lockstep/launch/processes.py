"""Start the ranks of a job on this machine and wait for them: by torch's elastic agent, or by torch.multiprocessing.

Both fork the ranks from the fork server; they differ in who supervises.
"""

import multiprocessing
import uuid
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.multiprocessing.spawn import ProcessException, start_processes

from lockstep.launch.exit_codes import attempt, exit_codes_in
from lockstep.launch.failure import first_failure
from lockstep.launch.place import Place
from lockstep.launch.server import start_method
from lockstep.launch.worker import Job, started_by_elastic, work

GRACE = 2.0
"""Seconds between asking the peers of a failed rank to end and ending them."""


def by_elastic(job: Job) -> Any:
    """Under torch's elastic agent, which supervises and could restart. It meets itself at a file: no socket listens."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=job.work.world.local_world_size,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint=str(job.folder / "agents"),
        rdzv_configs={"store_type": "file"},
        max_restarts=job.work.world.max_restarts,
        monitor_interval=0.05,
        start_method=start_method(),
        signals_to_handle="",  # they are ours: see `undisturbed`
        local_addr="127.0.0.1",
        logs_specs=DefaultLogsSpecs(log_dir=str(job.folder / "elastic")),
    )
    try:
        with exit_codes_in(job.folder):
            return elastic_launch(config, started_by_elastic)(job)[0]
    except ChildFailedError as error:
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        notes = [attempt(job.folder, restarts) for restarts in range(config.max_restarts + 1)]
        raise first_failure([folder for folder in notes if folder.exists()][-1], codes) from None


def by_spawn(job: Job) -> Any:
    """By torch.multiprocessing: what its `spawn` does, forked from the fork server where there is one."""
    world = job.work.world.local_world_size
    context = multiprocessing.get_context(start_method())
    returned = context.SimpleQueue()
    ranks = start_processes(  # type: ignore[no-untyped-call]
        started_by_spawn, (job, world, returned), nprocs=world, join=False, start_method=start_method()
    )
    try:
        while not ranks.join(grace_period=GRACE):
            pass
        return returned.get()
    except ProcessException as error:
        codes = {error.error_index: ranks.processes[error.error_index].exitcode}
        raise first_failure(attempt(job.folder, 0), codes) from None
    finally:
        for process in ranks.processes:
            if process.is_alive():
                process.kill()
            process.join()


def started_by_spawn(rank: int, job: Job, world: int, returned: "SimpleQueue[Any]") -> None:
    try:
        result = work(job, Place(rank, world, rank, world))
    except Exception:  # its note is left; torch's own, with a traceback, may not fit on a full disk
        raise SystemExit(1) from None
    if rank == 0:
        returned.put(result)


STARTS: dict[str, Callable[[Job], Any]] = {"elastic": by_elastic, "spawn": by_spawn}
