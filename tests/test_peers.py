"""Which rank beside this one the system has stopped: seen in real processes, and ended only where it is to blame."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch.distributed import FileStore  # type: ignore[attr-defined]

from lockstep.errors import PeerStopped, RendezvousTimeout
from lockstep.launch.peers import kill_stopped_peers, local_peer_pids, publish_pid, stopped_peer
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan

TIMED_OUT = RuntimeError("[unbound_buffer.cc:129] Timed out waiting 3000ms for send operation to complete")

Sleeper = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    """A process that sleeps, or that is stopped."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*, stopped: bool) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        started.append(process)
        if stopped:
            process.send_signal(signal.SIGSTOP)
            wait_for_letter(process.pid, "T")
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def wait_for_letter(process: int, letter: str) -> None:
    deadline = time.monotonic() + 10
    while f") {letter} " not in Path(f"/proc/{process}/stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_stopped_one_is_named_and_ended(sleeper: Sleeper, make_plan: Callable[..., Plan]) -> None:
    world = make_plan("strategy=ddp", "devices=3", "batch_size=9", "process_group.timeout=3").world
    alive, stopped = sleeper(stopped=False), sleeper(stopped=True)
    peers = {1: alive.pid, 2: stopped.pid}
    found = stopped_peer(TIMED_OUT, world, peers)
    assert found is not None
    assert found.rank == 2
    assert str(found) == "it was stopped (by SIGSTOP, say) and did not answer within 3 s (process_group.timeout)"
    kill_stopped_peers(found, peers)
    assert stopped.wait(10) == -signal.SIGKILL
    assert alive.poll() is None


def test_nobody_is_blamed_who_runs(sleeper: Sleeper, make_plan: Callable[..., Plan]) -> None:
    world = make_plan("strategy=ddp", "devices=2").world
    assert stopped_peer(TIMED_OUT, world, {1: sleeper(stopped=False).pid}) is None


def test_a_stopped_peer_is_not_to_blame_for_an_error_of_ones_own(
    sleeper: Sleeper, make_plan: Callable[..., Plan]
) -> None:
    world = make_plan("strategy=ddp", "devices=2").world
    stopped = sleeper(stopped=True)
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert stopped_peer(error, world, {1: stopped.pid}) is None
    kill_stopped_peers(error, {1: stopped.pid})
    time.sleep(0.2)
    assert stopped.poll() is None


def test_a_command_of_many_jobs_does_not_end_what_it_did_not_start_as_a_rank(sleeper: Sleeper) -> None:
    """This process is no rank: its stopped child is none either."""
    stopped = sleeper(stopped=True)
    kill_stopped_peers(RendezvousTimeout("rank 1 of 2 did not join within 3 s"), {})
    time.sleep(0.2)
    assert stopped.poll() is None


def test_ranks_of_one_machine_learn_of_each_other(tmp_path: Path) -> None:
    """Two machines of two ranks: the third rank is beside the fourth, and beside no other."""
    store = FileStore(str(tmp_path / "store"))
    places = [RankContext(rank, 4, rank % 2, 2) for rank in range(4)]
    for context in places:
        publish_pid(store, context)
    store.set("pid of rank 3", "77")
    assert local_peer_pids(store, places[2]) == {3: 77}
    assert [*local_peer_pids(store, places[1])] == [0]


def test_a_peer_that_is_gone_is_not_stopped(sleeper: Sleeper, make_plan: Callable[..., Plan]) -> None:
    gone = sleeper(stopped=False)
    gone.kill()
    gone.wait()
    world = make_plan("strategy=ddp", "devices=2").world
    assert stopped_peer(TIMED_OUT, world, {1: gone.pid}) is None
    kill_stopped_peers(PeerStopped(1, "it was stopped"), {1: gone.pid})
