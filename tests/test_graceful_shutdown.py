"""The request to stop, on threads that stand for ranks, at a store as real ranks share one."""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from torch.distributed import DistNetworkError, FileStore, Store, TCPStore  # type: ignore[attr-defined]

from lockstep.launch.stop_request import FileRequest, SignalRequest, StopRequest
from lockstep.launch.topology import ACCEPTS_STOP, STOP_REQUESTED, Stop

STEP = 0.01


def trained(stop: Stop, until: int, seconds: float = STEP) -> int:
    """The step after which a rank stops that trains alone, `until` at the latest."""
    with stop.accepting_stop(0):
        for step in range(1, until + 1):
            time.sleep(seconds)
            if stop.should_stop(step):
                return step
    return -1


@pytest.fixture
def stores(tmp_path: Path) -> list[Store]:
    """A rank's own view each of one store."""
    return [FileStore(str(tmp_path / "store")) for _ in range(3)]


def in_threads(stops: list[StopRequest], seconds: list[float], until: int = 400) -> list[int]:
    ended = [0] * len(stops)

    def train(rank: int) -> None:
        ended[rank] = trained(stops[rank], until, seconds[rank])

    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(len(stops))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return ended


def test_nobody_asks_and_nobody_stops() -> None:
    assert trained(StopRequest(lambda: False, 0, 1, None), until=5) == -1


def test_alone_it_stops_after_the_step_under_way() -> None:
    began = time.monotonic()
    requested = lambda: time.monotonic() > began + 0.2  # noqa: E731
    step = trained(StopRequest(requested, 0, 1, None), until=400)
    assert 0.2 / (3 * STEP) < step < 60


def test_ranks_that_do_not_keep_step_stop_after_the_same_one(stores: list[Store]) -> None:
    """One is asked; the slowest is far behind then, and goes on to where the quickest was."""
    began = time.monotonic()
    requested = [lambda: False, lambda: time.monotonic() > began + 0.3, lambda: False]
    stops = [StopRequest(requested[rank], rank, 3, stores[rank]) for rank in range(3)]
    stop_after = in_threads(stops, [STEP, 2 * STEP, 4 * STEP])
    assert len({*stop_after}) == 1
    assert stop_after[0] > 12, "the quickest had come further than the slowest ever had in that time"
    assert stop_after[0] < 100


def test_a_rank_whose_peers_never_answer_does_not_hang_behind_its_end(stores: list[Store]) -> None:
    """Training that fails, say, while the ranks agree."""
    stop = StopRequest(lambda: True, 0, 2, stores[0])
    began = time.monotonic()
    with contextlib.suppress(ZeroDivisionError), stop.accepting_stop(0):
        time.sleep(0.3)
        raise ZeroDivisionError
    assert time.monotonic() - began < 2


def test_the_command_asks_by_a_file_where_it_is_told_that_it_is_heard(tmp_path: Path) -> None:
    stop = FileRequest(tmp_path, 0, 1, None)
    assert not (tmp_path / ACCEPTS_STOP).exists()
    with stop.accepting_stop(0):
        assert (tmp_path / ACCEPTS_STOP).exists()
        assert not stop.should_stop(1)
        (tmp_path / STOP_REQUESTED).touch()
        time.sleep(0.5)
        assert stop.should_stop(2)
    assert not (tmp_path / ACCEPTS_STOP).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_a_rank_of_torchrun(number: signal.Signals) -> None:
    """And is its own again afterwards."""
    before = signal.getsignal(number)
    stop = SignalRequest(0, 1, None)
    timer = threading.Timer(0.2, os.kill, [os.getpid(), number])
    timer.start()
    step = trained(stop, until=400)
    timer.join()
    assert 0 < step < 100
    assert stop.accepted
    assert signal.getsignal(number) is before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_signal_between_two_requests_is_not_heeded() -> None:
    stop = SignalRequest(0, 1, None)
    assert trained(stop, until=20) == -1
    assert not stop.accepted


def test_the_ranks_time_runs_though_the_store_is_lost() -> None:
    master = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    class Lost(Store):
        def check(self, keys: list[str]) -> bool:
            return master.check(keys)

        def set(self, _key: str, _value: str) -> None:
            raise DistNetworkError("the host is gone")

    stop = SignalRequest(0, 1, Lost())
    with stop.accepting_stop(0):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.decided.wait(5)
        assert stop.timer.is_alive()
