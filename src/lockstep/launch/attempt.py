"""The processes of one attempt, one a rank: started, watched, and killed.

Each has a pipe to the command for its report. The fork server knows how a process ended; without the server only its
process number tells whether it is alive.
"""

import time
from collections.abc import Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch.multiprocessing

from lockstep.launch.failure import FailureReport, RankFailed, first_failure
from lockstep.launch.forkserver import ensure_forkserver, how_server_ended, start_method
from lockstep.launch.process_table import alive, descendants, kill
from lockstep.launch.worker import Done, LaunchSpec, run_rank

KILL_TIMEOUT = 10.0
"""Seconds within which a process is gone after SIGKILL, unless the kernel itself waits in it (for a disk, a GPU)."""
POLL_INTERVAL = 0.01
LOST = 255
"""multiprocessing's exit status of a process whose fork server is gone."""


class Attempt:
    """The ranks of a job, started for the time number `restarts` (from 0).

    variables: of their environment, beside the command's.

    Raises:
        RankFailed: the fork server ended before it had started all of them.
    """

    def __init__(self, job: LaunchSpec, restarts: int = 0, variables: Mapping[str, str] | None = None) -> None:
        context: Any = torch.multiprocessing.get_context(start_method())
        self.processes: list[BaseProcess] = []
        self.readers: list[Connection | None] = []
        self.reports: dict[int, Done | FailureReport] = {}
        ensure_forkserver()
        try:
            for rank in range(job.work.world.local_world_size):
                reader, writer = context.Pipe(duplex=False)
                with writer:
                    process = context.Process(target=run_rank, args=(rank, restarts, job, writer, variables or {}))
                    process.start()
                self.processes.append(process)
                self.readers.append(reader)
        except (EOFError, ConnectionError):
            self.end()
            if (ended := how_server_ended()) is None:
                raise
            raise RankFailed(None, ended) from None
        except BaseException:
            self.end()
            raise

    @property
    def pids(self) -> dict[int, int]:
        return {rank: int(process.pid or 0) for rank, process in enumerate(self.processes)}

    def wait(self, seconds: float) -> dict[int, Any] | None:
        """What each rank returned, once all have ended; None if some have not within `seconds`.

        Raises:
            ConfigError, RankFailed: a rank ended before its work was done; all have been ended.
        """
        running = [process.sentinel for process in self.processes if process.exitcode is None]
        open_readers = [reader for reader in self.readers if reader]
        if running or open_readers:  # of nothing, `wait` would wait for all the seconds
            wait([*running, *open_readers], seconds)
        codes = {rank: process.exitcode for rank, process in enumerate(self.processes)}
        self._read()  # complete for processes that had ended before
        done = {rank: report.result for rank, report in self.reports.items() if isinstance(report, Done)}
        bad = {rank: code for rank, code in codes.items() if code is not None and (code or rank not in done)}
        server = how_server_ended() if bad and {*bad.values()} == {LOST} else None
        if bad:
            self.end()
        if server is not None and len(done) < len(codes):
            raise RankFailed(None, server)
        if bad and server is None:
            raise first_failure([report for report in self.reports.values() if isinstance(report, FailureReport)], bad)
        return done if bad or (len(done) == len(codes) and None not in codes.values()) else None

    def end(self) -> None:
        """Kill the processes and their descendants by SIGKILL, and wait until they are gone.

        Raises:
            RankFailed: one cannot be killed.
        """
        # another process may have the number of one that is known to have ended
        pids = {rank: pid for rank, pid in self.pids.items() if self.processes[rank].exitcode in (None, LOST)}
        living = [pid for pid in pids.values() if alive(pid)]
        for pid in [*living, *descendants(living)] if living else []:
            kill(pid)
        deadline = time.monotonic() + KILL_TIMEOUT
        for rank, pid in pids.items():
            while alive(pid):
                if time.monotonic() > deadline:
                    raise RankFailed(rank, f"its process {pid} cannot be ended, not even by SIGKILL")
                time.sleep(POLL_INTERVAL)
            self.processes[rank].join(KILL_TIMEOUT)
        for reader in self.readers:
            if reader:
                reader.close()
        self.readers = []

    def _read(self) -> None:
        for rank, reader in enumerate(self.readers):
            try:
                while reader and reader.poll():
                    self.reports[rank] = reader.recv()
            except (EOFError, OSError):
                reader.close()  # type: ignore[union-attr]
                self.readers[rank] = None
