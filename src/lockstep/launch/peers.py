"""The ranks beside this one on the same machine, as processes: which of them the system has stopped.

A stopped process (SIGSTOP, a debugger) is alive and answers nobody: its peers wait until their time is over, and no
SIGTERM reaches it. So the peer that finds it out names it, and ends it.
"""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.ending import NotJoined, PeerStopped
from lockstep.launch.place import Place
from lockstep.world import World

PROCESSES = Path("/proc")
STOPPED = ("T", "t")
"""Linux's letters for a process that was stopped by a signal, or by a debugger."""
BEGAN = 19
"""Where /proc/<process>/stat says when it began, behind its name."""
ENDED = ("Z", "X")
"""And for one that has ended, and waits for its parent to take note of it."""


def announce(store: Store, place: Place) -> None:
    store.set(f"process of {place.rank}", str(os.getpid()))


def beside(store: Store, place: Place) -> dict[int, int]:
    """Process numbers by rank, of this machine's other ranks, once all have announced theirs."""
    first = place.rank - place.local_rank
    ranks = (rank for rank in range(first, first + place.local_world_size) if rank != place.rank)
    return {rank: int(store.get(f"process of {rank}")) for rank in ranks}


def stopped_peer(error: Exception, world: World, peers: Mapping[int, int]) -> PeerStopped | None:
    """Whether an error came about because a peer was stopped while this rank waited for it."""
    if not timed_out(error):
        return None
    for rank, process in peers.items():
        if stopped(process):
            return PeerStopped(rank, f"it was stopped (by SIGSTOP, say) and did not answer within {limit(world)}")
    return None


def timed_out(error: Exception) -> bool:
    """Whether this rank waited in vain."""
    return "timed out" in str(error).lower()


def limit(world: World) -> str:
    return f"{world.process_group.timeout:g} s (process_group.timeout)"


def end_the_stopped(error: Exception, peers: Mapping[int, int]) -> None:
    """Nobody else can: the launcher's SIGTERM waits until they go on.

    Args:
        error: why this rank ends. Ranks that never joined are not among `peers`; they are children of the same
            launcher, where that starts nothing but ranks.
    """
    processes = [*peers.values()] if isinstance(error, PeerStopped) else []
    if isinstance(error, NotJoined) and (multiprocessing.parent_process() or "TORCHELASTIC_RUN_ID" in os.environ):
        processes = _siblings()
    for process in processes:
        if stopped(process):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


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
    table = _table()
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


def _siblings() -> list[int]:
    return [number for number, status in _table().items() if status[1] == str(os.getppid())]


def _table() -> dict[int, list[str]]:
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
