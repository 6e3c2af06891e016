"""Colours: on a terminal, for what is right or wrong; nowhere else."""

import os
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import TextIO

import pytest

from lockstep.colour import painted
from lockstep.compare.comparison import Comparison
from lockstep.compare.tolerance import IDENTICAL
from lockstep.launch.failure import print_exit_reason

GREEN, RED, END = "\x1b[32m", "\x1b[31m", "\x1b[0m"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    master, slave = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with os.fdopen(slave, "w") as stream:
        yield stream
    os.close(master)


def test_on_a_terminal_alone(terminal: TextIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert painted("a\nb", "red", terminal) == f"{RED}a{END}\n{RED}b{END}"
    assert painted("a", None, terminal) == "a"
    assert painted("a", "red", StringIO()) == "a"
    with (tmp_path / "file").open("w") as file:
        assert painted("a", "red", file) == "a"
    monkeypatch.setenv("TERM", "dumb")
    assert painted("a", "red", terminal) == "a"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert painted("a", "red", terminal) == "a"


def test_a_verdict_is_green_or_red(terminal: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    alike, apart = Comparison("a", "b", IDENTICAL), Comparison("a", "b", IDENTICAL)
    alike.add("record.jsonl:step.loss_sum", 1.0, 1.0, "step 1", (1, 0))
    apart.add("record.jsonl:step.loss_sum", 1.0, 2.0, "step 1", (1, 0))
    monkeypatch.setattr(sys, "stdout", terminal)
    assert f"{GREEN}identical{END}; expected: identical" in alike.text(coloured=True)
    assert f"{RED}different{END}; expected: identical" in apart.text(coloured=True)
    assert "\x1b" not in apart.text(), "as files have it"


def test_what_is_refused_begins_red(terminal: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", shown)
    print_exit_reason("devices=0: it must be 1 or more; write devices=1.", None)
    assert shown.getvalue() == f"{RED}devices=0{END}: it must be 1 or more; write devices=1.\n"
