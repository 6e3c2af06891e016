"""The fork server starts before Hydra is imported, if the command is likely to start ranks."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from lockstep.__main__ import ranks_to_start
from lockstep.launch.start import start_ranks
from lockstep.plan.schemas.run import ENGINES, EVERY_RUN
from tests.conftest import ROOT, MakePlan

SPY = """
import runpy, sys
from lockstep.launch import forkserver
forkserver.start_forkserver = lambda *engines: print(*engines, *({"hydra", "torch"} & sys.modules.keys()))
sys.argv = ["train.py", *sys.argv[1:]]
runpy.run_path("train.py", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("words", "terminal", "expected"),
    [
        (("devices=1",), False, True),
        (("devices=1",), True, False),
        (("strategy=ddp", "devices=2"), True, True),
        (("--help",), False, False),
    ],
)
def test_whether_ranks_will_start(
    words: tuple[str, ...], terminal: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.isatty", lambda _descriptor: terminal)
    assert ranks_to_start(words) is expected


def test_a_run_in_this_process_ends_an_unneeded_server(monkeypatch: pytest.MonkeyPatch, make_plan: MakePlan) -> None:
    kill = Mock()
    monkeypatch.setattr("lockstep.launch.start.kill_forkserver", kill)
    monkeypatch.setattr("lockstep.launch.worker.run_in_process", lambda work, *_: (work, []))
    plan = make_plan("strategy.in_process=true")
    assert start_ranks(plan, ENGINES["lightning"]) is plan
    kill.assert_called_once()


def test_it_starts_before_hydra_is_imported() -> None:
    line = (sys.executable, "-c", SPY, "devices=0")
    ended = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL)
    assert (ended.returncode, ended.stdout) == (2, " ".join((*ENGINES.values(), *EVERY_RUN)) + "\n"), ended.stderr
    assert ended.stderr.startswith("devices=0:")


def test_a_signal_while_the_command_imports_leaves_nothing(tmp_path: Path) -> None:
    """The terminal's Ctrl-C reaches the server, too, which has it blocked."""
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:  # a short path, as sockets need it
        command = [sys.executable, str(ROOT / "train.py"), "strategy=ddp", "devices=2"]
        environment = {**os.environ, "TMPDIR": temporary}
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0
        ) as process:
            while not [*Path(temporary).glob("pymp-*/listener-*")]:
                assert process.poll() is None
                time.sleep(0.005)
            os.killpg(process.pid, signal.SIGINT)
            signalled = time.monotonic()
            _, err = process.communicate()  # ends when no process holds the pipe
            assert b"Traceback" not in err
            assert time.monotonic() - signalled < 2
        assert process.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
        assert [*Path(temporary).iterdir()] == []
