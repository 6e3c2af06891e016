"""Ctrl-C during `python -m lockstep.check`: it prints and saves the answers by then, and leaves nothing behind."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.conftest import Command

PARTS = ["a stock Trainer on 2 ranks", "Lockstep: ddp on 2", "Lockstep: virtual on 2", "Lockstep: single on 1"]


@pytest.mark.slow
def test_an_interrupt_says_what_is_known(command: Command, request: pytest.FixtureRequest) -> None:
    """A terminal signals all processes of the command, and timeout(1) does it twice."""
    temporary = Path(mkdtemp(prefix="check-"))  # the path of a socket has about 100 characters
    request.addfinalizer(lambda: shutil.rmtree(temporary))
    words = [sys.executable, "-m", "lockstep.check", "model=mlp", "data=digits", "model.net.hidden=[8]", "steps=6"]
    process = command.popen(*words, TMPDIR=str(temporary))
    assert process.stderr is not None
    lines = [process.stderr.readline()]
    while PARTS[0] not in lines[-1]:
        assert lines[-1], "".join(lines)
        lines.append(process.stderr.readline())
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
    ended = command.wait(process)
    assert ended.status == 130
    assert "  identical  the order of two epochs\n" in ended.out
    assert f"Interrupted: nothing is known of {', '.join(PARTS)}." in ended.out
    [content] = (json.loads(path.read_text()) for path in command.folder.glob("logs/check/*/check.json"))
    assert content["interrupted"] == PARTS
    assert "the order of two epochs" in {each["question"] for each in content["answers"]}
    assert not command.survivors()
    assert not [*temporary.iterdir()]
