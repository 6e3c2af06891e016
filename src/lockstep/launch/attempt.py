"""The processes of one attempt, one per rank: started, watched, killed, and restarted after a failure.

Each has a pipe to the command for its report; the fork server knows how a process ended.
"""

import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch.multiprocessing

from lockstep.base.config_error import ConfigError
from lockstep.base.private_api.cpython import kill_forkserver
from lockstep.launch.failure import (
    PEER_DELAY,
    TIMEOUT,
    TIMEOUT_IN_USER_CODE,
    FailureReport,
    RankFailed,
    absent_rank,
    first_failure,
)
from lockstep.launch.forkserver import ensure_forkserver
from lockstep.launch.signals import SHUTDOWN_TIMEOUT, kill_trees
from lockstep.launch.worker import LaunchSpec, run_rank

POLL_INTERVAL = 0.5
KILL_TIMEOUT = 10.0  # s; only the kernel itself, for a disk or a GPU, keeps a killed process longer
LOST = 255  # multiprocessing's exit status of a process whose fork server is gone
OVERDUE = "rank {} has not ended {:g} s after training, because of a thread or process that is no daemon: it is killed"
SERVER_LOST = "the fork server, from which all ranks start, is lost: the system may have killed it to free memory"


def run_attempts(job: LaunchSpec) -> Any:
    """Start the ranks, up to `max_restarts` times again if a restart may help; return what rank 0 returns."""
    max_restarts = job.work.world.max_restarts
    returned: dict[int, Any] | None = None
    while returned is None:
        attempt = Attempt(job)
        try:
            while returned is None:
                returned = attempt.wait(POLL_INTERVAL)
        except RankFailed as failure:
            if failure.final or job.restarts == max_restarts:
                raise
            job = replace(job, restarts=job.restarts + 1)
            *_, last_line = failure.reason.strip().splitlines()
            summary = RankFailed(failure.rank, last_line)
            print(f"restart {job.restarts} of {max_restarts}: {summary}", file=sys.stderr, flush=True)
        finally:
            attempt.end()
    return returned[0]


class Attempt:
    """The ranks of a job, running.

    deadline: when ranks that have reported must have ended, whatever threads the user's code has.
    """

    def __init__(self, job: LaunchSpec) -> None:
        context: Any = torch.multiprocessing.get_context("forkserver")
        self.folder, self.world = job.folder, job.work.world
        self.processes: list[BaseProcess] = []
        self.readers: dict[int, Connection] = {}
        self.results: dict[int, Any] = {}
        self.failures: dict[int, FailureReport] = {}
        self.deadline = float("inf")
        try:
            ensure_forkserver()
            for rank in range(self.world.local_world_size):
                self.readers[rank], writer = context.Pipe(duplex=False)
                with writer:
                    process = context.Process(target=run_rank, args=(rank, job, writer))
                    process.start()
                self.processes.append(process)
        except BaseException as error:
            kill_forkserver()  # it may be starting a rank whose pid is unknown here, and takes that rank with it
            self.end()
            if isinstance(error, EOFError | ConnectionError):
                raise RankFailed(None, SERVER_LOST) from None
            raise

    @property
    def pids(self) -> dict[int, int]:
        return {rank: int(process.pid or 0) for rank, process in enumerate(self.processes)}

    def wait(self, seconds: float) -> dict[int, Any] | None:
        """Return what each rank returned, or None if some have not ended within `seconds`."""
        running = [process.sentinel for process in self.processes if process.exitcode is None]
        if running or self.readers:  # else `wait` would sleep for all the seconds
            wait([*running, *self.readers.values()], seconds)
        codes = {rank: process.exitcode for rank, process in enumerate(self.processes)}
        self._read()  # complete for processes that had ended before
        failed = {rank: code for rank, code in codes.items() if code is not None and (code or rank not in self.results)}
        overdue = [rank for rank, code in codes.items() if code is None and time.monotonic() > self.deadline]
        if failed or (self.failures and overdue):
            failure = self._failure(failed)
            self.end()
            raise failure
        if overdue:
            print(OVERDUE.format(overdue[0], SHUTDOWN_TIMEOUT), file=sys.stderr, flush=True)
        is_done = len(self.results) == len(codes) and (overdue or None not in codes.values())
        return self.results if is_done else None

    def _failure(self, exit_codes: dict[int, int]) -> ConfigError | RankFailed:
        """Return the cause of the failures, with the exit codes of the ranks that have ended too early."""
        if {*exit_codes.values()} == {LOST}:
            kill_forkserver()  # the next attempt starts another
            return RankFailed(None, SERVER_LOST)
        if first_failure(self.failures, exit_codes).kind in (TIMEOUT_IN_USER_CODE, TIMEOUT):
            time.sleep(PEER_DELAY)  # peers report their timeouts, too
            self._read()
            silent = {rank: pid for rank, pid in self.pids.items() if rank not in {*self.failures, *self.results}}
            running = {rank: pid for rank, pid in silent.items() if self.processes[rank].is_alive()}
            if running:
                return absent_rank(running, self.folder, self.world)
        return first_failure(self.failures, exit_codes).error

    def end(self) -> None:
        """Kill the processes and their descendants, and wait until they are gone."""
        # another process may have the pid of one that is known to have ended
        pids = [self.pids[rank] for rank, process in enumerate(self.processes) if process.exitcode in (None, LOST)]
        if alive := kill_trees(pids, KILL_TIMEOUT):
            raise RankFailed(None, f"process {alive[0]} of a rank cannot be ended, not even by SIGKILL")
        for process in self.processes:
            process.join(KILL_TIMEOUT)
        for reader in self.readers.values():
            reader.close()
        self.readers.clear()

    def _read(self) -> None:
        for rank, reader in [*self.readers.items()]:
            try:
                while reader.poll():
                    report = reader.recv()
                    (self.failures if isinstance(report, FailureReport) else self.results)[rank] = report
                    if self.failures or len(self.results) == len(self.processes):
                        self.deadline = min(self.deadline, time.monotonic() + SHUTDOWN_TIMEOUT)
            except (EOFError, OSError):
                self.readers.pop(rank).close()
