"""A rank fails: the command ends soon, names the rank and the reason, leaves no process, and its checkpoint loads."""

from pathlib import Path

import pytest

from lockstep.plan.targets.frames import MEMORY_HINT
from tests.fault_injection.command import SMALL, Faulty

LIMIT = 10.0
"""Seconds that a command has to end in, from the fault; from the timeout of its group, where a rank is stopped."""
KILLED = f"it was ended by SIGKILL (the system does so when memory runs out: {MEMORY_HINT})"
KINDS = {
    "raise": "ZeroDivisionError: on purpose",
    "exit": "it ended with exit status 3 and no traceback",
    "kill": KILLED,
    "stop": "it did not answer within 6 s (process_group.timeout): it loops, waits or is stopped",
}
BY_TORCHRUN = "Signal 9 (SIGKILL) received"
"""What torchrun reports of a rank that leaves no message. Its ranks may start seconds apart."""
MOMENTS = {"starting": None, "step:5": 4, "validation:3": 8, "saving:2": 2}
"""With the step of the newest valid checkpoint: the third pass through a layer validates the second epoch."""
slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("start", "kind", "rank", "moment"),
    [
        ("ddp", "raise", 0, "step:5"),
        pytest.param("ddp", "kill", 1, "starting", marks=slow),
        pytest.param("ddp_spawn", "exit", 1, "validation:3", marks=slow),
        pytest.param("ddp_spawn", "stop", 0, "saving:2", marks=slow),
        pytest.param("torchrun", "kill", 0, "step:5", marks=slow),
    ],
)
def test_a_rank_fails(start: str, kind: str, rank: int, moment: str, tmp_path: Path) -> None:
    """Each kind of failure at some moments, by every start."""
    by_torchrun = start == "torchrun"
    timeout = 12 if by_torchrun else 6
    faulty = Faulty(tmp_path, start, f"{kind}@{rank}:{moment}", (*SMALL, f"process_group.timeout={timeout}"))
    ended = faulty.wait()
    assert faulty.fault_time, f"no failure: {ended.out}\n{ended.err}"
    assert ended.status == 1
    assert ended.seconds < LIMIT * (1 + by_torchrun) + timeout * (kind == "stop")
    assert faulty.left() == []
    saved = faulty.saved_step()
    assert saved == MOMENTS[moment]
    if saved is not None:
        assert faulty.curve() >= {*range(1, saved + 1)}, "all that the checkpoint knows of was logged"
    traced = kind == "raise"
    if by_torchrun:
        said, _, report = ended.err.partition("Root Cause (first observed failure):")
        assert f"rank      : {rank} " in report, ended.err
        assert ended.err.count(BY_TORCHRUN) == 1, ended.err
        assert " failed: " not in said, ended.err
    else:
        assert ended.err.startswith(f"rank {rank} failed: "), ended.err
        assert KINDS[kind] in ended.err.splitlines()[-1]
        assert (ended.err.count("failed: "), ended.err.count("Traceback")) == (1, int(traced)), ended.err


@slow
def test_a_lost_fork_server_ends_the_command(tmp_path: Path) -> None:
    faulty = Faulty(tmp_path, "ddp", "server@1:step:7", (*SMALL, "max_epochs=400"))
    ended = faulty.wait()
    assert ended.seconds < LIMIT
    assert ended.status == 1
    assert "the fork server, from which all ranks start, is lost: " in ended.err, ended.err
    assert ended.err.count("\n") == 1
    assert faulty.left() == []
