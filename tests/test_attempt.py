"""The processes of one attempt: none outlives it. test_restarts.py has its failures."""

import multiprocessing.forkserver
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from lockstep.launch.attempt import Attempt
from lockstep.launch.forkserver import start_forkserver
from lockstep.launch.signals import is_alive
from lockstep.launch.worker import LaunchSpec
from tests.conftest import MakePlan

ENGINE = "tests.fault_injection.faulty_engine"
Start = Callable[..., Attempt]


@pytest.fixture
def start(make_plan: MakePlan, tmp_path: Path) -> Iterator[Start]:
    """Start two ranks, one of which fails as the engine for tests says."""
    start_forkserver(ENGINE)
    plan = make_plan("strategy=ddp", "devices=2", "process_group.timeout=4")
    started: list[Attempt] = []

    def of(fault: str, folder: str = ".") -> Attempt:
        path = tmp_path / folder / f"group{len(started)}"
        job = LaunchSpec(plan, ENGINE, path, tmp_path, {**os.environ, "FAULT": fault}, restarts=len(started))
        started.append(Attempt(job))
        return started[-1]

    yield of
    for attempt in started:
        attempt.end()


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and is_alive(psutil.Process(pid))


@pytest.mark.slow  # the fork server of later tests has to start anew
def test_an_interrupted_start_leaves_no_rank(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal comes before the command knows the pid of a rank, which holds Python's lock: its file is missing."""
    read, pids = multiprocessing.forkserver.read_signed, list[int]()

    def interrupt(descriptor: int) -> int:
        pids.append(read(descriptor))
        time.sleep(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(multiprocessing.forkserver, "read_signed", interrupt)
    with pytest.raises(KeyboardInterrupt):
        start("none@0", folder="missing")
    deadline = time.monotonic() + 5
    while alive(*pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_processes_of_a_rank_end_with_it(start: Start) -> None:
    """A child, and its child."""
    attempt = start("children@1")
    deadline = time.monotonic() + 90
    while len(below := psutil.Process(attempt.pids[1]).children(recursive=True)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    attempt.end()
    assert psutil.wait_procs(below, timeout=5)[1] == []
