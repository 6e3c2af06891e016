"""The other ranks of this machine, as processes: which of them is stopped.

A stopped process (SIGSTOP, a debugger) is alive and answers nobody: its peers wait until they time out, and it handles
no SIGTERM. So the peer that times out names it, and kills it.
"""

import multiprocessing
import os
from collections.abc import Mapping

from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.errors import PeerStopped, RendezvousTimeout
from lockstep.launch.process_table import kill, process_table, stopped
from lockstep.launch.topology import RankContext
from lockstep.world import World


def publish_pid(store: Store, context: RankContext) -> None:
    store.set(f"pid of rank {context.rank}", str(os.getpid()))


def local_peer_pids(store: Store, context: RankContext) -> dict[int, int]:
    """Process numbers by rank, of this machine's other ranks, once all have published theirs."""
    first = context.rank - context.local_rank
    ranks = (rank for rank in range(first, first + context.local_world_size) if rank != context.rank)
    return {rank: int(store.get(f"pid of rank {rank}")) for rank in ranks}


def stopped_peer(error: Exception, world: World, peers: Mapping[int, int]) -> PeerStopped | None:
    """The stopped peer that this rank waited for when it timed out, if there is one."""
    if not timed_out(error):
        return None
    for rank, process in peers.items():
        if stopped(process):
            return PeerStopped(
                rank, f"it was stopped (by SIGSTOP, say) and did not answer within {timeout_text(world)}"
            )
    return None


def timed_out(error: Exception) -> bool:
    """Whether a collective or the rendezvous timed out."""
    return "timed out" in str(error).lower()


def timeout_text(world: World) -> str:
    return f"{world.process_group.timeout:g} s (process_group.timeout)"


def kill_stopped_peers(error: Exception, peers: Mapping[int, int]) -> None:
    """Kill them by SIGKILL: they handle the launcher's SIGTERM only once they run again.

    Args:
        error: why this rank ends. Ranks that never joined are not among `peers`; they are looked for among the
            children of the same launcher, where that starts nothing but ranks.
    """
    processes = [*peers.values()] if isinstance(error, PeerStopped) else []
    if isinstance(error, RendezvousTimeout) and (
        multiprocessing.parent_process() or "TORCHELASTIC_RUN_ID" in os.environ
    ):
        processes = _siblings()
    for process in processes:
        if stopped(process):
            kill(process)


def _siblings() -> list[int]:
    return [number for number, status in process_table().items() if status[1] == str(os.getppid())]
