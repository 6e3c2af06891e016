"""The processes of a job, one per rank: started, watched by their pipes and their exit codes, and killed."""

import multiprocessing
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from lockstep.base.private_api.cpython import kill_forkserver
from lockstep.launch.failure import SERVER_LOST, TIMEOUT, FailureReport, RankFailed, first_failure, timeout_text
from lockstep.launch.forkserver import ensure_forkserver
from lockstep.launch.signals import kill_trees
from lockstep.launch.topology import LaunchSpec

POLL_INTERVAL = 0.5
KILL_TIMEOUT = 10.0  # s; only the kernel itself, for a disk or a GPU, keeps a killed process longer


def run_rank(rank: int, job: LaunchSpec, command: Connection) -> None:
    """Call a rank's code, whose file needs torch: the command does without."""
    from lockstep.launch import worker

    worker.run_rank(rank, job, command)


class Ranks:
    """The processes of a job, and what they have reported."""

    def __init__(self, job: LaunchSpec) -> None:
        context = multiprocessing.get_context("forkserver")
        self.world = job.work.world
        self.processes: list[BaseProcess] = []
        self.readers: dict[int, Connection] = {}
        self.results: dict[int, Any] = {}
        self.failures: dict[int, FailureReport] = {}
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

    def have_ended(self) -> bool:
        """Wait for a change, or POLL_INTERVAL; return whether all have done their work; raise the first failure."""
        running = [process.sentinel for process in self.processes if process.exitcode is None]
        if running or self.readers:  # else `wait` would sleep for all the seconds
            wait([*running, *self.readers.values()], POLL_INTERVAL)
        codes = {rank: process.exitcode for rank, process in enumerate(self.processes)}
        for rank, reader in [*self.readers.items()]:  # complete for processes that had ended before
            try:
                while reader.poll():
                    report = reader.recv()
                    (self.failures if isinstance(report, FailureReport) else self.results)[rank] = report
            except (EOFError, OSError):
                self.readers.pop(rank).close()
        failed = {rank: code for rank, code in codes.items() if code is not None and (code or rank not in self.results)}
        if failed:
            failure = first_failure(self.failures, failed)
            silent = self.readers.keys() - self.failures.keys() - self.results.keys() - failed.keys()
            if failure.kind == TIMEOUT and silent:
                reason = f"it did not answer within {timeout_text(self.world)}: it loops, waits or is stopped"
                raise RankFailed(min(silent), reason)
            raise failure.error
        return None not in codes.values()

    def end(self) -> None:
        """Kill the processes and their descendants, and wait until they are gone."""
        # another process may have the pid of one that is known to have ended
        pids = [process.pid or 0 for process in self.processes if process.exitcode is None]
        if alive := kill_trees(pids, KILL_TIMEOUT):
            raise RankFailed(None, f"process {alive[0]} of a rank cannot be ended, not even by SIGKILL")
        for process in self.processes:
            process.join(KILL_TIMEOUT)
        for reader in self.readers.values():
            reader.close()
        self.readers.clear()
