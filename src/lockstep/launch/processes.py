"""Kill processes, and wait until they are gone."""

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil


def kill_trees(pids: Iterable[int], timeout: float) -> list[int]:
    """Kill processes and their descendants; return the pids of those that are alive after so many seconds."""
    processes = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            processes += [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    deadline = time.monotonic() + timeout
    while (alive := [*filter(is_alive, processes)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return [process.pid for process in alive]


def is_alive(process: psutil.Process) -> bool:
    """Whether a process has not ended; a zombie has."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped a process."""
    with suppress(psutil.Error):
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return False
