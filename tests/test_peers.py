"""A peer that is stopped is named if it is why a rank timed out."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from torch.distributed import FileStore  # type: ignore[attr-defined]

from lockstep.launch.peers import local_peer_pids, pid_key, stopped_peer
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan

TIMED_OUT = RuntimeError("[unbound_buffer.cc:129] Timed out waiting 3000ms for send operation to complete")

Sleeper = Callable[..., psutil.Popen]


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    """Start a process that sleeps, or that is stopped."""
    started: list[psutil.Popen] = []

    def start(*, stopped: bool) -> psutil.Popen:
        started.append(psutil.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        if stopped:
            started[-1].send_signal(signal.SIGSTOP)
            while started[-1].status() != psutil.STATUS_STOPPED:
                time.sleep(0.01)
        return started[-1]

    yield start
    for process in started:
        with suppress(psutil.NoSuchProcess):
            process.kill()
        process.wait()


def test_only_a_stopped_peer_is_blamed_for_a_timeout(sleeper: Sleeper, make_plan: Callable[..., Plan]) -> None:
    world = make_plan("strategy=ddp", "devices=4", "batch_size=12", "process_group.timeout=3").world
    alive, ended, stopped = sleeper(stopped=False), sleeper(stopped=False), sleeper(stopped=True)
    ended.kill()
    ended.wait()
    peers = {0: alive.pid, 1: ended.pid, 2: stopped.pid}
    found = stopped_peer(TIMED_OUT, world, peers)
    assert found is not None
    assert found.rank == 2
    assert str(found) == "it was stopped (by SIGSTOP, say) and did not answer within 3 s (process_group.timeout)"
    assert stopped_peer(RuntimeError("mat1 and mat2 shapes cannot be multiplied"), world, peers) is None
    assert stopped_peer(TIMED_OUT, world, {0: alive.pid, 1: ended.pid}) is None


def test_ranks_of_one_machine_know_their_pids(tmp_path: Path) -> None:
    """Two machines of two ranks: the third rank is beside the fourth, and beside no other."""
    store = FileStore(str(tmp_path / "store"))
    ranks = [RankContext(rank, 4, rank % 2, 2) for rank in range(4)]
    for rank in range(4):
        store.set(pid_key(rank), str(74 + rank))
    assert local_peer_pids(store, ranks[2]) == {3: 77}
    assert local_peer_pids(store, ranks[1]) == {0: 74}
