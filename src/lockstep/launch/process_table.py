"""The system's table of processes: which are alive, which are stopped, and which have started which."""

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

PROCESSES = Path("/proc")
STOPPED, ENDED = ("T", "t"), ("Z", "X")
"""Linux's letters for a process that a signal or a debugger stopped, and for one that its parent has to wait for."""
START_TIME = 19
"""The index of a process's start time among the fields of /proc/<process>/stat behind its name."""


def alive(process: int) -> bool:
    """Whether there is such a process, and it has not ended yet."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, PermissionError):  # the number may be that of another user's by now
        return False
    return _state(process) not in ENDED


def stopped(process: int) -> bool:
    """Whether a signal or a debugger has stopped it; False without /proc."""
    return _state(process) in STOPPED


def descendants(processes: Iterable[int]) -> dict[int, str]:
    """The children of these processes, and theirs: start times by process number.

    None without /proc, or of a process that is gone: its children have another parent.
    """
    found: dict[int, str] = {}
    table = process_table()
    parents = {str(process) for process in processes}
    while parents:
        children = {number: status for number, status in table.items() if status[1] in parents and number not in found}
        found |= {number: status[START_TIME] for number, status in children.items()}
        parents = {str(number) for number in children}
    return found


def kill_processes(processes: Mapping[int, str]) -> None:
    """By SIGKILL, what `descendants` has found, unless another process has the number by now."""
    for process, start_time in processes.items():
        if _status(process)[START_TIME : START_TIME + 1] == [start_time]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def process_table() -> dict[int, list[str]]:
    """The fields of `_status` by process number; empty without /proc."""
    numbers = [int(path.name) for path in PROCESSES.glob("[0-9]*")]
    return {number: status for number in numbers if (status := _status(number))}


def _state(process: int) -> str:
    return "".join(_status(process)[:1])


def _status(process: int) -> list[str]:
    """State, parent and the fields that follow in /proc/<process>/stat; empty without such a file."""
    try:
        return (PROCESSES / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
