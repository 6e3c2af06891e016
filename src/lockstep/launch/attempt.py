"""The processes of one attempt, one per rank: started, watched, killed, and restarted after a failure.

Each has a pipe to the command for its report; the fork server knows how a process ended.
"""

import sys
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch.multiprocessing

from lockstep.launch.failure import FailureReport, RankFailed, first_failure
from lockstep.launch.forkserver import ensure_forkserver
from lockstep.launch.processes import is_stopped, kill_trees
from lockstep.launch.timeouts import timed_out, timeout_text
from lockstep.launch.worker import Done, LaunchSpec, run_rank
from lockstep.private_api.cpython import kill_forkserver

POLL_INTERVAL = 0.5
"""Seconds of one wait for the ranks; the end of a rank ends it at once."""
KILL_TIMEOUT = 10.0
"""Seconds within which a process is gone after SIGKILL, unless the kernel itself waits in it (for a disk, a GPU)."""
LOST = 255
"""multiprocessing's exit status of a process whose fork server is gone."""
SERVER_LOST = "the fork server, from which all ranks start, is lost: the system may have killed it to free memory"


def run_attempts(job: LaunchSpec) -> Any:
    """Start the ranks, up to `max_restarts` times again if a restart may help; return what rank 0 returns.

    Raises:
        ConfigError, RankFailed: a rank failed; all have been ended.
    """
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

    Raises:
        RankFailed: the fork server ended before it had started all of them.
    """

    def __init__(self, job: LaunchSpec) -> None:
        context: Any = torch.multiprocessing.get_context("forkserver")
        self.world = job.work.world
        self.processes: list[BaseProcess] = []
        self.readers: dict[int, Connection] = {}
        self.reports: dict[int, Done | FailureReport] = {}
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
        """Return what each rank returned, or None if some have not ended within `seconds`.

        Raises:
            ConfigError, RankFailed: a rank ended before its work was done; all have been ended.
        """
        running = [process.sentinel for process in self.processes if process.exitcode is None]
        if running or self.readers:  # else `wait` would sleep for all the seconds
            wait([*running, *self.readers.values()], seconds)
        codes = {rank: process.exitcode for rank, process in enumerate(self.processes)}
        self._read()  # complete for processes that had ended before
        done = {rank: report.result for rank, report in self.reports.items() if isinstance(report, Done)}
        failed = {rank: code for rank, code in codes.items() if code is not None and (code or rank not in done)}
        if not failed:
            return done if len(done) == len(codes) and None not in codes.values() else None
        if {*failed.values()} == {LOST}:
            kill_forkserver()  # the next attempt starts another
            self.end()
            raise RankFailed(None, SERVER_LOST)
        stopped = [rank for rank, pid in self.pids.items() if rank not in failed and is_stopped(pid)]
        self.end()
        reports = {rank: report for rank, report in self.reports.items() if isinstance(report, FailureReport)}
        failure = first_failure(reports, failed)
        if stopped and timed_out(failure):
            limit = timeout_text(self.world)
            raise RankFailed(stopped[0], f"it was stopped (by SIGSTOP, say) and did not answer within {limit}")
        raise failure

    def end(self) -> None:
        """Kill the processes and their descendants, and wait until they are gone.

        Raises:
            RankFailed: one cannot be killed.
        """
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
                    self.reports[rank] = reader.recv()
            except (EOFError, OSError):
                self.readers.pop(rank).close()
