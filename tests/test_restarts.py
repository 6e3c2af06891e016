"""strategy.max_restarts: ranks that failed are started anew and end as if nothing had been; or say why they cannot."""

import json
from pathlib import Path

import pytest

from lockstep.run_files import METRICS, RECORD
from lockstep.targets.frames import MEMORY_HINT
from tests.fault_injection.command import SMALL, Faulty

RESTARTS = (*SMALL, "strategy.max_restarts=2", "process_group.timeout=3", "optimizer=sgd", "optimizer.momentum=0.9")
KILLED = f"it was ended by SIGKILL (the system does so when memory runs out: {MEMORY_HINT})"
SERVER = "the fork server, from which all ranks start, is lost"


def leaves(run_dir: Path) -> tuple[str, list[str]]:
    return json.loads((run_dir / METRICS).read_text())["digest"], (run_dir / RECORD).read_text().splitlines()[1:]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    whole = Faulty(tmp_path_factory.mktemp("whole"), "ddp", "raw", overrides=RESTARTS)
    ended = whole.wait()
    assert (ended.status, ended.err) == (0, "")
    return leaves(whole.run_dir)


@pytest.mark.parametrize("engine", ["raw", pytest.param("lightning", marks=pytest.mark.slow)])
def test_killed_and_failed_it_ends_as_if_nothing_had_been(
    engine: str, uninterrupted: tuple[str, list[str]], tmp_path: Path
) -> None:
    """Killed in step 7; then, gone on with from step 6, an error of rank 0 in its fourth step, which is step 10."""
    faulty = Faulty(tmp_path, "ddp", engine, "kill@1:step:7,raise@0:step:4,", RESTARTS)
    ended = faulty.wait()
    assert ended.status == 0, ended.err
    assert ended.err.splitlines() == [
        f"restart 1 of 2: rank 1 failed: {KILLED}",
        "restart 2 of 2: rank 0 failed: ZeroDivisionError: on purpose",
    ]
    assert leaves(faulty.run_dir) == uninterrupted
    assert faulty.left() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("exit@0:starting", "rank 0 failed: it ended with exit status 3 and no traceback"),
        ("stop@0:step:7", "rank 0 failed: it was stopped (by SIGSTOP, say) and did not answer within 3 s"),
        ("memory@1:validation:3", "rank 1 failed: Memory ran out: lower"),
        ("kill@0:saving:2", f"rank 0 failed: {KILLED}"),
        ("server@1:step:7", f"{SERVER}: {KILLED}"),
        ("server@0:starting", f"{SERVER}: {KILLED}"),
        ("end@1:validation:3", "rank 1 failed: it ended with status 0 before its work was done"),
    ],
)
def test_whatever_went_wrong_it_goes_on(
    first: str, said: str, uninterrupted: tuple[str, list[str]], tmp_path: Path
) -> None:
    """The ranks that are left without a fork server would still train, and write, beside those that follow."""
    faulty = Faulty(tmp_path, "ddp", "raw", f"{first},", RESTARTS)
    ended = faulty.wait()
    assert ended.status == 0, ended.err
    [line] = ended.err.splitlines()
    assert line.startswith(f"restart 1 of 2: {said}")
    assert leaves(faulty.run_dir) == uninterrupted
    assert faulty.left() == []


@pytest.mark.slow
def test_when_no_restart_is_left_the_last_cause_is_told(tmp_path: Path) -> None:
    faulty = Faulty(tmp_path, "ddp", "raw", "kill@1:step:3,exit@0:step:1,raise@1:step:1", RESTARTS)
    ended = faulty.wait()
    assert ended.status == 1
    first, second, *last = ended.err.splitlines()
    assert first == f"restart 1 of 2: rank 1 failed: {KILLED}"
    assert second == "restart 2 of 2: rank 0 failed: it ended with exit status 3 and no traceback"
    assert last[0] == "rank 1 failed: Traceback (most recent call last):"
    assert last[-1] == "ZeroDivisionError: on purpose"
    assert ended.err.count("Traceback") == 1
    assert faulty.saved_step() == 2
    assert faulty.left() == []


def test_what_would_fail_again_is_not_tried_again(tmp_path: Path) -> None:
    """A learning rate with which the loss becomes no number, on every try."""
    faulty = Faulty(tmp_path, "ddp", "raw", overrides=(*RESTARTS, "optimizer.lr=1e30"))
    ended = faulty.wait()
    assert ended.status == 1
    assert ended.err.count("\n") == 1
    assert "the loss" in ended.err
    assert "nan" in ended.err or "inf" in ended.err
    assert faulty.left() == []
