"""The system's table of processes: which are alive, which are stopped, and which have started which."""

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

PROCESSES = Path("/proc")
STOPPED, ENDED = ("T", "t"), ("Z", "X")
"""Linux's letters for a process that a signal or a debugger stopped, and for one that its parent has to wait for."""


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


def descendants(processes: Iterable[int]) -> list[int]:
    """Return the children of these processes, their children, and so on; none without /proc."""
    table, parents = process_table(), [*processes]
    for parent in parents:  # which grows
        parents += [number for number, status in table.items() if status[1] == str(parent) and number not in parents]
    return [number for number in parents if number not in processes]


def kill(process: int) -> None:
    """Send SIGKILL to a process, if it is still there."""
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
