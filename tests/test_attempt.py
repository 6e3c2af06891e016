"""The processes of one attempt: failures are reported, and no process outlives it, even without a fork server."""

import multiprocessing.forkserver
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lockstep.launch.attempt import Attempt
from lockstep.launch.failure import RankFailed
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


def ended(attempt: Attempt, seconds: float = 90) -> dict[int, Any]:
    deadline = time.monotonic() + seconds
    while (returned := attempt.wait(0.5)) is None:
        assert time.monotonic() < deadline, "it waits for ever"
    return returned


@pytest.mark.slow
def test_a_lost_fork_server_ends_all_ranks(start: Start) -> None:
    attempt = start("sleep@1")
    server = multiprocessing.forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    pids = attempt.pids.values()
    assert all(map(alive, pids))
    os.kill(server, signal.SIGKILL)
    with pytest.raises(RankFailed, match=r"^the fork server, .*, is lost") as failed:
        ended(attempt)
    assert failed.value.rank is None
    assert not any(map(alive, pids))
    assert ended(start("none@0"))[0]["total"] == 6, "the next ranks come from a new one"


needs_states = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see who is stopped")


def test_processes_that_have_ended_are_not_killed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may have its pid."""
    attempt = start("none@0")
    ended(attempt)
    with monkeypatch.context() as patched:
        patched.setattr("lockstep.launch.attempt.kill_trees", lambda pids, _: pytest.fail(f"{pids}") if pids else [])
        attempt.end()


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
@needs_states
def test_a_stopped_rank_is_named_after_the_timeout(start: Start) -> None:
    attempt = start("sleep@1")
    assert attempt.wait(2.0) is None
    os.kill(attempt.pids[1], signal.SIGSTOP)
    reason = r"^rank 1 failed: it was stopped .* and did not answer within 4 s \(process_group.timeout\)$"
    with pytest.raises(RankFailed, match=reason):
        ended(attempt)
    assert not any(map(alive, attempt.pids.values()))


@needs_states
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
