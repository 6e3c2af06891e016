"""The request to stop, on threads in place of ranks, with a shared store."""

import contextlib
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch.distributed import FileStore, HashStore, Store  # type: ignore[attr-defined]

from lockstep.launch.signals import COALESCE, first_signal_requests_stop
from lockstep.launch.topology import STOP_REQUESTED, Stop

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
    flags = [bytearray(2) for _ in range(3)]
    stops = [Stop(flags[rank], rank, 3, stores[rank]) for rank in range(3)]
    threading.Timer(0.3, flags[1].__setitem__, [STOP_REQUESTED, 1]).start()
    with ThreadPoolExecutor() as threads:
        stop_after = [*threads.map(trained, stops, [400] * 3, [STEP, 2 * STEP, 4 * STEP])]
    assert len({*stop_after}) == 1
    assert 12 < stop_after[0] < 100, "further than the slowest could have come"


def test_a_failing_rank_does_not_wait_for_its_peers(stores: list[Store]) -> None:
    stop = Stop(bytearray([0, 1]), 0, 2, stores[0])
    began = time.monotonic()
    with contextlib.suppress(ZeroDivisionError), stop.accepting_stop(0):
        time.sleep(0.3)
        raise ZeroDivisionError
    assert time.monotonic() - began < 2


def test_a_signal_requests_a_stop() -> None:
    """In a rank of an external launcher, which ignores further ones."""
    number, before = signal.SIGINT, signal.getsignal(signal.SIGINT)
    timer, flags = threading.Timer(0.2, os.kill, [os.getpid(), number]), bytearray(2)
    with first_signal_requests_stop(flags, coalesce=60) as requests:
        timer.start()
        step = trained(Stop(flags, store=HashStore()), until=400)
        timer.join()
        time.sleep(COALESCE)
        signal.raise_signal(signal.SIGTERM)
    assert 0 < step < 100
    assert requests == [number]
    assert signal.getsignal(number) is before
