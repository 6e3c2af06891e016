"""The command's signal handlers, and the signals of ranks and of the processes that they start."""

import signal
import sys
import time

import pytest

from lockstep.launch.signals import first_signal_requests_stop, signal_handlers
from lockstep.launch.topology import ACCEPTS_STOP, STOP_REQUESTED
from tests.conftest import ROOT, Command


@pytest.mark.parametrize(("program", "imports"), [((str(ROOT / "train.py"),), 200), (("-m", "lockstep.compare"), 60)])
def test_ctrl_c_during_imports_shows_no_traceback(program: tuple[str, ...], imports: int, command: Command) -> None:
    """After so many imports, counted from the command's first, of `signal`; before it Python itself starts."""
    process = command.popen(sys.executable, "-X", "importtime", *program, "--help")
    assert process.stderr is not None
    began = False
    while line := process.stderr.readline():
        began = began or line.endswith(" signal\n")
        imports -= began
        if imports == 0:
            break
    process.send_signal(signal.SIGINT)
    ended = command.wait(process)
    assert ended.status in (-signal.SIGINT, 130)
    assert "Traceback" not in ended.err
    assert "KeyboardInterrupt" not in ended.err


IMPORTS_TORCH = """
import os, signal, sys, time
from lockstep.launch.signals import end_command, signal_handlers

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":  # by torch's C code, which drops an exception
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Finder())
with signal_handlers(end_command):
    import torch
    time.sleep(30)
"""


def test_a_signal_while_torch_is_imported_is_not_lost(command: Command) -> None:
    ended = command.fresh(sys.executable, "-c", IMPORTS_TORCH)
    assert (ended.status, ended.out) == (128 + signal.SIGTERM, "")
    assert ended.err == "SIGTERM: ended at once, without a new checkpoint\n"
    assert ended.seconds < 25


def test_the_first_signal_requests_a_stop_and_a_later_one_ends_the_command() -> None:
    """Two signals at once count as one; the timer sends another if the ranks do not stop."""
    ended, flags = list[int](), bytearray(2)
    with signal_handlers(lambda number, _: ended.append(number)), first_signal_requests_stop(flags) as requests:
        signal.raise_signal(signal.SIGINT)
        assert (requests, ended) == ([], [signal.SIGINT]), "no rank trains yet"
        flags[ACCEPTS_STOP] = 1
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        assert (requests, len(ended)) == ([signal.SIGTERM], 1)
        assert flags[STOP_REQUESTED]
        time.sleep(0.4)
        signal.raise_signal(signal.SIGHUP)
    assert ended == [signal.SIGINT, signal.SIGHUP]


def test_the_command_ends_when_ranks_do_not_stop_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.launch.signals.SHUTDOWN_TIMEOUT", 0.5)
    ended, flags = list[int](), bytearray([1, 0])
    with signal_handlers(lambda number, _: ended.append(number)), first_signal_requests_stop(flags):
        signal.raise_signal(signal.SIGHUP)
        time.sleep(1)
    assert ended == [signal.SIGHUP]


def test_a_caller_of_run_is_interrupted_as_usual() -> None:
    with pytest.raises(KeyboardInterrupt), first_signal_requests_stop(bytearray(2)):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_ignored_signals_stay_ignored() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with first_signal_requests_stop(bytearray(2)):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert callable(signal.getsignal(signal.SIGQUIT))
        assert signal.getsignal(signal.SIGQUIT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
