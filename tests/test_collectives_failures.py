"""Wrong calls, made on purpose: each ends within its time, with a message that says what was wrong."""

import csv
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lockstep.collectives.failures import (
    CASES,
    SLACK,
    FailureOptions,
    exit_if_hung,
    is_caught,
    run_failures,
)
from lockstep.launch.failure import RankFailed
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from tests.conftest import Command, MakePlan
from tests.rank_helpers import on_ranks


@pytest.mark.slow
def test_all_cases(command: Command) -> None:
    """The fixture sees to it that no process is left."""
    ended = command(sys.executable, "-m", "lockstep.collectives", "failures", "timeout=5", "devices=3")
    assert ended.status == 0, ended.out + ended.err
    assert ended.err == ""
    assert "7 of 7 failures caught" in ended.out
    with (Path(ended.out.splitlines()[-1].strip()) / "failures.csv").open(newline="") as file:
        rows = dict(zip(CASES, csv.DictReader(file), strict=True))
    assert {row["caught"] for row in rows.values()} == {"True"}
    assert re.match(r"rank 0|Wait timeout|\[.*\] Timed out", rows["peer"]["message"])
    assert rows["sizes"]["message"].startswith("rank 2")
    assert "Ranks 2 failed to pass monitoredBarrier" in rows["missing"]["message"]


def test_a_crash_and_a_mismatch_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One rank that the signal of a crash ends, and one error that torch raises."""
    monkeypatch.chdir(tmp_path)
    assert run_failures(FailureOptions(), ["sizes", "dtypes"]) == 0
    out = capsys.readouterr().out
    assert "1/2 receive of another size than was sent (gloo crashes): caught after" in out
    assert "2/2 all-reduce of different dtypes: caught after" in out
    assert "rank 1" in out
    assert "2 of 2 failures caught (timeout 5 s)" in out


@pytest.mark.parametrize(
    ("name", "message", "seconds", "caught"),
    [
        ("missing", "[Rank 0]: Ranks 1 failed to pass monitoredBarrier", 1.0, True),
        ("missing", "[Rank 0]: Ranks 1 failed to pass monitoredBarrier", 1.1 + SLACK, False),
        *((name, "no error: the call returned", 0.1, False) for name in CASES),
        ("missing", "rank 1 failed: it was ended by SIGSEGV", 0.1, False),
        ("peer", "rank 0 failed: it was ended by SIGSEGV", 6.1, True),
        ("peer", "rank 1 failed: it was ended by SIGSEGV", 0.1, False),
        ("peer", "Wait timeout", 1.0, True),
        ("peer", "[…/unbound_buffer.cc:129] Timed out waiting 1000ms for send operation to complete", 1.0, True),
    ],
)
def test_what_counts_as_caught(name: str, message: str, seconds: float, caught: bool) -> None:
    assert is_caught(CASES[name], message, seconds, 1.0) is caught


def test_what_is_not_caught_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_error(payload: object, engine: str) -> tuple[str, float]:
        return "no error: the call returned", 0.1

    monkeypatch.setattr("lockstep.collectives.failures.start_ranks", no_error)
    monkeypatch.chdir(tmp_path)
    assert run_failures(FailureOptions(timeout=1.0), ["sizes"]) == 1
    said = capsys.readouterr().out
    assert "NOT CAUGHT after 0.1 s" in said
    assert "0 of 1 failures caught" in said


def hangs(plan: Plan, context: RankContext) -> Any:
    with exit_if_hung(1 - SLACK):
        time.sleep(60)


def test_a_hang_ends(make_plan: MakePlan) -> None:
    began = time.monotonic()
    with pytest.raises(RankFailed):
        on_ranks(make_plan("strategy=ddp", "devices=2", "batch_size=12", "accelerator=cpu"), hangs)
    assert time.monotonic() - began < 20
