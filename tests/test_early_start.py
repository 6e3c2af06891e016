"""The fork server starts before Hydra is imported, if the command is likely to start ranks."""

import subprocess
import sys
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
