"""A peer that is stopped is named and killed, if it is why a rank timed out."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from torch.distributed import FileStore  # type: ignore[attr-defined]

from lockstep.errors import PeerStopped
from lockstep.launch.peers import kill_stopped_peers, local_peer_pids, pid_key, stopped_peer
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


def test_a_stopped_peer_is_named_and_killed(sleeper: Sleeper, make_plan: Callable[..., Plan]) -> None:
    world = make_plan("strategy=ddp", "devices=3", "batch_size=9", "process_group.timeout=3").world
    alive, stopped = sleeper(stopped=False), sleeper(stopped=True)
    peers = {1: alive.pid, 2: stopped.pid}
    found = stopped_peer(TIMED_OUT, world, peers)
    assert found is not None
    assert found.rank == 2
    assert str(found) == "it was stopped (by SIGSTOP, say) and did not answer within 3 s (process_group.timeout)"
    kill_stopped_peers(found, peers)
    assert stopped.wait(10) == -signal.SIGKILL
    assert alive.is_running()


def test_a_running_peer_is_not_blamed(sleeper: Sleeper, make_plan: Callable[..., Plan]) -> None:
    world = make_plan("strategy=ddp", "devices=2").world
    assert stopped_peer(TIMED_OUT, world, {1: sleeper(stopped=False).pid}) is None


def test_a_stopped_peer_is_not_blamed_for_another_error(sleeper: Sleeper, make_plan: Callable[..., Plan]) -> None:
    world = make_plan("strategy=ddp", "devices=2").world
    stopped = sleeper(stopped=True)
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert stopped_peer(error, world, {1: stopped.pid}) is None
    kill_stopped_peers(error, {1: stopped.pid})
    time.sleep(0.2)
    assert stopped.is_running()
    assert stopped.status() == psutil.STATUS_STOPPED


def test_ranks_of_one_machine_exchange_their_pids(tmp_path: Path) -> None:
    """Two machines of two ranks: the third rank is beside the fourth, and beside no other."""
    store = FileStore(str(tmp_path / "store"))
    places = [RankContext(rank, 4, rank % 2, 2) for rank in range(4)]
    for rank in range(4):
        store.set(pid_key(rank), str(74 + rank))
    assert local_peer_pids(store, places[2]) == {3: 77}
    assert [*local_peer_pids(store, places[1])] == [0]


def test_a_peer_that_has_ended_is_not_stopped(sleeper: Sleeper, make_plan: Callable[..., Plan]) -> None:
    gone = sleeper(stopped=False)
    gone.kill()
    gone.wait()
    world = make_plan("strategy=ddp", "devices=2").world
    assert stopped_peer(TIMED_OUT, world, {1: gone.pid}) is None
    kill_stopped_peers(PeerStopped(1, "it was stopped"), {1: gone.pid})
