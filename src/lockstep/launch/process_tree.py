"""End process trees, by psutil."""

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

from lockstep.launch.failure import RankFailed

KILL_TIMEOUT = 10.0
"""Seconds within which a process is gone after SIGKILL, unless the kernel itself waits in it (for a disk, a GPU)."""
POLL_INTERVAL = 0.01


def is_alive(process: psutil.Process) -> bool:
    """Whether a process has not ended; a zombie has."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def kill_trees(pids: Iterable[int]) -> None:
    """Kill processes and their descendants, and wait until they are gone.

    Raises:
        RankFailed: one cannot be killed.
    """
    processes = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            processes += [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    deadline = time.monotonic() + KILL_TIMEOUT
    while alive := [process.pid for process in processes if is_alive(process)]:
        if time.monotonic() > deadline:
            raise RankFailed(None, f"process {alive[0]} of a rank cannot be ended, not even by SIGKILL")
        time.sleep(POLL_INTERVAL)
