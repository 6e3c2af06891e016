"""What the system tells of processes: which are alive, which are stopped, and which have started which.

Imports nothing heavy: the command asks before torch is there.
"""

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

PROCESSES = Path("/proc")
STOPPED = ("T", "t")
"""Linux's letters for a process that was stopped by a signal, or by a debugger."""
BEGAN = 19
"""Where /proc/<process>/stat says when it began, behind its name."""
ENDED = ("Z", "X")
"""And for one that has ended, and waits for its parent to take note of it."""


def alive(process: int) -> bool:
    """Whether there is such a process, and it has not ended yet."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, PermissionError):  # the number may be that of another user's by now
        return False
    return _letter(process) not in ENDED


def stopped(process: int) -> bool:
    """Where the system does not tell (no /proc): no."""
    return _letter(process) in STOPPED


def started_by(processes: Iterable[int]) -> dict[int, str]:
    """What these have started, and that in turn: process numbers, each with when its process began.

    Nothing where the system does not tell (no /proc), or of those that are gone: their children have another parent.
    """
    found: dict[int, str] = {}
    table = process_table()
    parents = {str(process) for process in processes}
    while parents:
        children = {number: status for number, status in table.items() if status[1] in parents and number not in found}
        found |= {number: status[BEGAN] for number, status in children.items()}
        parents = {str(number) for number in children}
    return found


def end_those(processes: Mapping[int, str]) -> None:
    """By SIGKILL, what `started_by` has found, and nothing else that has a number of theirs by now."""
    for process, began in processes.items():
        if _status(process)[BEGAN : BEGAN + 1] == [began]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def process_table() -> dict[int, list[str]]:
    """Of all processes, state and parent and what follows them; empty where there is no /proc."""
    numbers = [int(path.name) for path in PROCESSES.glob("[0-9]*")]
    return {number: status for number in numbers if (status := _status(number))}


def _letter(process: int) -> str:
    return "".join(_status(process)[:1])


def _status(process: int) -> list[str]:
    """State and parent, and what follows them in /proc/<process>/stat; nothing where there is no such file."""
    try:
        return (PROCESSES / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
