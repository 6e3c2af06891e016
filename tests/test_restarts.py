"""strategy.max_restarts: after a failure all ranks restart, and end like an uninterrupted run."""

from pathlib import Path

import pytest

from lockstep.plan.targets.frames import MEMORY_HINT
from tests.fault_injection.command import SMALL, Faulty, Leaves, leaves

RESTARTS = (*SMALL, "strategy.max_restarts=2", "process_group.timeout=3", "optimizer=sgd", "optimizer.momentum=0.9")
KILLED = f"it was ended by SIGKILL (the system does so when memory runs out: {MEMORY_HINT})"
SERVER = "the fork server, from which all ranks start, is lost"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Leaves:
    full = Faulty(tmp_path_factory.mktemp("full"), "ddp", overrides=RESTARTS)
    ended = full.wait()
    assert (ended.status, ended.err) == (0, "")
    return leaves(full.run_dir)


def test_two_failures_change_nothing(uninterrupted: Leaves, tmp_path: Path) -> None:
    """A kill in step 7; then, resumed from step 6, an error of rank 0 in its fourth step, which is step 10."""
    faulty = Faulty(tmp_path, "ddp", "kill@1:step:7,raise@0:step:4,", RESTARTS)
    ended = faulty.wait()
    assert ended.status == 0, ended.err
    assert ended.err.splitlines() == [
        f"restart 1 of 2: rank 1 failed: {KILLED}",
        "restart 2 of 2: rank 0 failed: ZeroDivisionError: on purpose",
    ]
    assert leaves(faulty.run_dir) == uninterrupted
    assert faulty.left() == []


FAILURES = {
    "exit@0:starting": "rank 0 failed: it ended with exit status 3 and no traceback",
    "server@0:starting": SERVER,
    "stop@0:step:3": "rank 0 failed: it was stopped (by SIGSTOP, say) and did not answer within 3 s",
    "memory@1:validation:1": "rank 1 failed: Memory ran out: lower",
    "kill@0:saving:2": f"rank 0 failed: {KILLED}",
    "server@1:step:2": SERVER,
    "end@1:validation:1": "rank 1 failed: it ended with exit status 0 and no traceback",
}
"""By fault, in this order: each start begins at the checkpoint of the one before."""


@pytest.mark.slow
def test_every_failure_can_be_restarted(uninterrupted: Leaves, tmp_path: Path) -> None:
    words = (*RESTARTS, f"strategy.max_restarts={len(FAILURES)}")
    faulty = Faulty(tmp_path, "ddp", ",".join([*FAILURES, ""]), words)
    ended = faulty.wait()
    assert ended.status == 0, ended.err
    for number, (line, reason) in enumerate(zip(ended.err.splitlines(), FAILURES.values(), strict=True), 1):
        assert line.startswith(f"restart {number} of {len(FAILURES)}: {reason}")
    assert leaves(faulty.run_dir) == uninterrupted
    assert faulty.left() == []


@pytest.mark.slow
def test_without_restarts_left_the_last_cause_is_shown(tmp_path: Path) -> None:
    faulty = Faulty(tmp_path, "ddp", "kill@1:step:3,exit@0:step:1,raise@1:step:1", RESTARTS)
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


def test_no_restart_if_it_would_fail_again(tmp_path: Path) -> None:
    """A learning rate with which the loss is never finite."""
    faulty = Faulty(tmp_path, "ddp", overrides=(*RESTARTS, "optimizer.lr=1e30"))
    ended = faulty.wait()
    assert ended.status == 1
    assert ended.err.count("\n") == 1
    assert "the loss" in ended.err
    assert "nan" in ended.err or "inf" in ended.err
    assert faulty.left() == []
