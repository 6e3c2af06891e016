"""The request to stop, on threads in place of ranks, with a shared store."""

import contextlib
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch.distributed import FileStore, Store  # type: ignore[attr-defined]

from lockstep.launch.stop_request import FileRequest, SignalRequest, StopRequest
from lockstep.launch.topology import ACCEPTS_STOP, STOP_REQUESTED, Stop

STEP = 0.01


def trained(stop: Stop, until: int, seconds: float = STEP) -> int:
    """Train on a single rank; return the step after which it stops, or -1."""
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


def test_all_ranks_stop_after_the_same_step(stores: list[Store]) -> None:
    """One receives the request; the slowest is far behind then, and trains to the step of the fastest."""
    began = time.monotonic()
    requested = [lambda: False, lambda: time.monotonic() > began + 0.3, lambda: False]
    stops = [StopRequest(requested[rank], rank, 3, stores[rank]) for rank in range(3)]
    with ThreadPoolExecutor() as threads:
        stop_after = [*threads.map(trained, stops, [400] * 3, [STEP, 2 * STEP, 4 * STEP])]
    assert len({*stop_after}) == 1
    assert 12 < stop_after[0] < 100, "further than the slowest could have come"


def test_a_failing_rank_does_not_wait_for_its_peers(stores: list[Store]) -> None:
    stop = StopRequest(lambda: True, 0, 2, stores[0])
    began = time.monotonic()
    with contextlib.suppress(ZeroDivisionError), stop.accepting_stop(0):
        time.sleep(0.3)
        raise ZeroDivisionError
    assert time.monotonic() - began < 2


def test_a_file_requests_a_stop(tmp_path: Path) -> None:
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
def test_a_signal_requests_a_stop(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stop = SignalRequest(0, 1, None)
    timer = threading.Timer(0.2, os.kill, [os.getpid(), number])
    timer.start()
    step = trained(stop, until=400)
    timer.join()
    assert 0 < step < 100
    assert stop.accepted
    assert signal.getsignal(number) is before
