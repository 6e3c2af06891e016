"""Wrong calls on purpose: which are caught. The command with all of them is one of docs/, which test_docs.py runs."""

from pathlib import Path

import pytest

from lockstep.collectives import tour
from lockstep.collectives.tour import RankOptions, show_failures

DTYPES, SIZES = "all-reduce of different dtypes", "receive of another size than was sent (gloo crashes)"


def test_a_crash_and_a_mismatch_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One rank that the signal of a crash ends, and one error that torch raises."""
    monkeypatch.chdir(tmp_path)
    assert show_failures(RankOptions(), [SIZES, DTYPES]) == 0
    out = capsys.readouterr().out
    assert "1/2 receive of another size than was sent (gloo crashes): caught after" in out
    assert "2/2 all-reduce of different dtypes: caught after" in out
    assert "rank 1" in out
    assert "2 of 2 failures caught (timeout 5 s)" in out


def test_calls_that_return_or_hang_are_not_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = iter(["no error: the call returned", "rank 1 failed: it exited with status 1"])
    monkeypatch.setattr(tour, "start_ranks", lambda *_: (next(messages), 0.1))
    monkeypatch.chdir(tmp_path)
    assert show_failures(RankOptions(), [SIZES, SIZES]) == 1
    out = capsys.readouterr().out
    assert out.count("NOT CAUGHT after 0.1 s") == 2
    assert "0 of 2 failures caught" in out
