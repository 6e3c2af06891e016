"""The other ranks of this machine, as processes: which of them is stopped.

A stopped process (SIGSTOP, a debugger) is alive and answers nobody: its peers wait until they time out, and it handles
no SIGTERM. So the peer that times out names it.
"""

from collections.abc import Mapping
from contextlib import suppress

import psutil
from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.errors import PeerStopped
from lockstep.launch.topology import RankContext
from lockstep.world import World


def pid_key(rank: int) -> str:
    """Return the key under which a rank that has joined the rendezvous publishes its pid."""
    return f"pid of rank {rank}"


def local_peer_pids(store: Store, context: RankContext) -> dict[int, int]:
    """Return the pids of this machine's other ranks, by rank."""
    first = context.rank - context.local_rank
    ranks = (rank for rank in range(first, first + context.local_world_size) if rank != context.rank)
    return {rank: int(store.get(pid_key(rank))) for rank in ranks}


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped a process."""
    with suppress(psutil.Error):
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return False


def stopped_peer(error: Exception, world: World, peers: Mapping[int, int]) -> PeerStopped | None:
    """Return the stopped peer that this rank waited for when it timed out, or None."""
    stopped = [rank for rank, pid in peers.items() if timed_out(error) and is_stopped(pid)]
    reason = f"it was stopped (by SIGSTOP, say) and did not answer within {timeout_text(world)}"
    return PeerStopped(stopped[0], reason) if stopped else None


def timed_out(error: Exception) -> bool:
    """Whether a collective or the rendezvous timed out."""
    return "timed out" in str(error).lower()


def timeout_text(world: World) -> str:
    return f"{world.process_group.timeout:g} s (process_group.timeout)"
