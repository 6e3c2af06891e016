"""The processes of a job: none outlives it."""

import multiprocessing.forkserver
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from lockstep.launch.forkserver import start_forkserver
from lockstep.launch.ranks import Ranks
from lockstep.launch.signals import is_alive
from lockstep.launch.topology import LaunchSpec
from tests.conftest import MakePlan

ENGINE = "tests.fault_injection.faulty_engine"
Start = Callable[[str, Path], Ranks]


@pytest.fixture
def start(make_plan: MakePlan) -> Iterator[Start]:
    """Start two ranks that meet at a file, one of which fails as the engine for tests says."""
    start_forkserver(ENGINE)
    plan = make_plan("strategy=ddp", "devices=2", "process_group.timeout=4")
    started: list[Ranks] = []

    def start_ranks(fault: str, file: Path) -> Ranks:
        started.append(Ranks(LaunchSpec(plan, ENGINE, file, bytearray(2), {**os.environ, "FAULT": fault})))
        return started[-1]

    yield start_ranks
    for ranks in started:
        ranks.end()


@pytest.mark.slow  # the fork server of later tests has to start anew
def test_an_interrupted_start_leaves_no_rank(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal comes before the command knows the pid of a rank, which holds Python's lock: its file is missing."""
    read, pids = multiprocessing.forkserver.read_signed, list[int]()

    def interrupt(descriptor: int) -> int:
        pids.append(read(descriptor))
        time.sleep(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(multiprocessing.forkserver, "read_signed", interrupt)
    with pytest.raises(KeyboardInterrupt):
        start("none@0", tmp_path / "missing" / "group")
    deadline = time.monotonic() + 5
    while psutil.pid_exists(pids[0]) and is_alive(psutil.Process(pids[0])):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_processes_of_a_rank_end_with_it(start: Start, tmp_path: Path) -> None:
    """A child, and its child."""
    ranks = start("children@1", tmp_path / "group")
    deadline = time.monotonic() + 90
    while len(below := psutil.Process(ranks.processes[1].pid).children(recursive=True)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    ranks.end()
    assert psutil.wait_procs(below, timeout=5)[1] == []
