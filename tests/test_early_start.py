"""The fork server starts before Hydra is imported, with the engines that the command line names."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from lockstep.__main__ import modules_in, ranks_to_start
from lockstep.launch.external_launcher import TORCHRUN
from lockstep.launch.start import start_ranks
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.run import EVERY_RUN
from lockstep.runs.run_files import Metrics
from tests.conftest import ROOT, MakePlan
from tests.rank_helpers import on_ranks

LIT, RAW, TENSORBOARD = "lockstep.engine", "lockstep.raw.run", "torch.utils.tensorboard"
SPY = """
import runpy, sys
from lockstep.launch import forkserver
forkserver.start_forkserver = lambda *engines: print(*engines, *({"hydra", "torch"} & sys.modules.keys()))
sys.argv = ["train.py", *sys.argv[1:]]
runpy.run_path("train.py", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("words", "modules"),
    [
        ((), [LIT, TENSORBOARD]),
        (("devices=2", "engine=raw", "logger=csv"), [RAW]),
        (("engine=both", "logger=none"), [LIT, RAW]),
        (("engine=lightning", "engine=raw", "logger=none"), [RAW]),
        (("-m", "engine=raw,lightning", "logger=none,tensorboard"), [LIT, RAW, TENSORBOARD]),
        (("experiment=sgd_by_hand",), [LIT, TENSORBOARD]),
        (("engine=rwa", "logger=none"), []),
    ],
)
def test_modules_of_a_command_line(words: tuple[str, ...], modules: list[str]) -> None:
    assert modules_in(words) == [*modules, *EVERY_RUN]


@pytest.mark.parametrize(
    ("words", "terminal", "expected"),
    [
        (("devices=1",), False, True),
        (("devices=1",), True, False),
        (("strategy=ddp", "devices=2"), True, True),
        (("-m", "seed=1,2"), True, True),
        (("--help",), False, False),
        (("--cfg", "job"), False, False),
    ],
)
def test_whether_ranks_will_start(
    words: tuple[str, ...], terminal: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.isatty", lambda _descriptor: terminal)
    assert ranks_to_start(words) is expected


def test_not_in_a_rank_that_torchrun_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TORCHRUN:
        monkeypatch.setenv(name, {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}.get(name, "1"))
    assert not ranks_to_start(["strategy=ddp", "devices=1"])


def test_a_run_in_this_process_ends_an_unneeded_server(monkeypatch: pytest.MonkeyPatch, make_plan: MakePlan) -> None:
    kill = Mock()
    monkeypatch.setattr("lockstep.launch.start.kill_forkserver", kill)
    monkeypatch.setattr("lockstep.launch.in_process.run_in_process", lambda work, *_: (work, []))
    plan = make_plan("strategy.in_process=true")
    assert start_ranks(plan, RAW) is plan
    kill.assert_called_once()


def collector(plan: Plan, context: RankContext) -> Metrics:
    return {"frozen": gc.get_freeze_count(), "enabled": gc.isenabled(), "young": gc.get_threshold()[0]}


def test_garbage_collection_of_a_rank(make_plan: MakePlan) -> None:
    """The fork server's collector is off; what a rank was forked with, torch among it, is frozen."""
    state = on_ranks(make_plan("strategy=ddp", "devices=1"), collector)
    assert int(state["frozen"]) > 100_000
    assert (state["enabled"], state["young"]) == (True, 100_000)


def test_it_starts_before_hydra_is_imported() -> None:
    line = (sys.executable, "-c", SPY, "engine=raw", "logger=csv", "devices=0")
    ended = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL)
    assert (ended.returncode, ended.stdout) == (2, " ".join((RAW, *EVERY_RUN)) + "\n"), ended.stderr
    assert ended.stderr.startswith("devices=0:")


def test_a_signal_while_the_command_imports_leaves_nothing(tmp_path: Path) -> None:
    """The terminal's Ctrl-C reaches the server, too, which has it blocked."""
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:  # a short path, as sockets need it
        command = [sys.executable, str(ROOT / "train.py"), "strategy=ddp", "devices=2"]
        environment = {**os.environ, "TMPDIR": temporary}
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0
        ) as process:
            while not [*Path(temporary).glob("lockstep-*/listener-*")]:
                assert process.poll() is None
                time.sleep(0.005)
            os.killpg(process.pid, signal.SIGINT)
            signalled = time.monotonic()
            _, err = process.communicate()  # ends when no process holds the pipe
            assert err == b""
            assert time.monotonic() - signalled < 2
        assert process.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
        assert [*Path(temporary).iterdir()] == []


def test_the_server_of_a_killed_command_ends_silently() -> None:
    """Some C++ libraries that torch imports report leaks at the interpreter's own end."""
    start = "from lockstep.launch.forkserver import *; start_forkserver('lockstep.engine')"
    killed = f"import os; {start}; os.kill(os.getpid(), 9)"
    ended = subprocess.run([sys.executable, "-c", killed], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-9, "", "")
