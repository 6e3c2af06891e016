"""The command's signal handler, and the signals of ranks and of the processes that they start."""

import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from lockstep.launch.stop_handler import signals_end_command
from lockstep.launch.topology import ACCEPTS_STOP, STOP_REQUESTED
from tests.conftest import ROOT, Command


@pytest.mark.parametrize(
    ("program", "imports"),
    [((str(ROOT / "train.py"),), 2), ((str(ROOT / "train.py"),), 200), (("-m", "lockstep.compare"), 60)],
)
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
from lockstep.launch.stop_handler import signals_end_command

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":  # by torch's C code, which drops what this raises
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Finder())
with signals_end_command():
    import torch
    time.sleep(30)
"""


def test_a_signal_while_torch_is_imported_is_not_lost(command: Command) -> None:
    ended = command.fresh(sys.executable, "-c", IMPORTS_TORCH)
    assert (ended.status, ended.out, ended.err) == (128 + signal.SIGTERM, "", "")
    assert ended.seconds < 25


def test_two_signals_at_once_count_as_one_and_a_later_one_ends_it(tmp_path: Path) -> None:
    (tmp_path / ACCEPTS_STOP).touch()
    cleaned_up = False
    with pytest.raises(SystemExit) as ended, signals_end_command(tmp_path) as handler:  # noqa: PT012
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        assert handler.requests == [signal.SIGTERM]
        assert (tmp_path / STOP_REQUESTED).exists()
        time.sleep(0.4)
        try:
            signal.raise_signal(signal.SIGHUP)
        finally:
            signal.raise_signal(signal.SIGTERM)  # clean-up that has begun, of the ranks, is not interrupted
            cleaned_up = True
    assert ended.value.code == 129
    assert cleaned_up


def test_a_key_that_is_held_down_counts_as_a_second_signal(tmp_path: Path) -> None:
    (tmp_path / ACCEPTS_STOP).touch()
    presses, interrupted = 0, False
    with pytest.raises(SystemExit), signals_end_command(tmp_path):  # noqa: PT012
        try:
            for presses in range(20):  # noqa: B007
                time.sleep(0.05)
                signal.raise_signal(signal.SIGINT)
        finally:
            interrupted = True
            for _ in range(20 - presses):
                time.sleep(0.05)
                signal.raise_signal(signal.SIGINT)
            interrupted = False
    assert 0 < presses < 19
    assert not interrupted, "clean-up"


@pytest.mark.parametrize("has_ranks", [False, True])
def test_a_lost_exit_is_raised_again(has_ranks: bool, tmp_path: Path) -> None:
    """OmegaConf's own clean-up fails if it is interrupted, and its caller catches that error."""
    reached = False
    with pytest.raises(SystemExit) as ended, signals_end_command(tmp_path if has_ranks else None):  # noqa: PT012
        try:
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                raise AttributeError("of its clean-up")
        except AttributeError:
            time.sleep(0.6)  # that error is being handled, and the exit with it
            reached = True
        time.sleep(10)
        reached = False
    assert ended.value.code == 128 + signal.SIGTERM
    assert reached
    with pytest.raises(SystemExit), signals_end_command(tmp_path if has_ranks else None), suppress(SystemExit):
        signal.raise_signal(signal.SIGHUP)


def test_an_error_that_follows_from_the_exit_does_not_hide_it(tmp_path: Path) -> None:
    """It does once there are ranks: one of them cannot be ended, say."""

    def fail() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit:
            raise RuntimeError("of its clean-up") from None

    with pytest.raises(SystemExit) as ended, signals_end_command():
        fail()
    assert ended.value.code == 128 + signal.SIGTERM
    with pytest.raises(RuntimeError, match="of its clean-up"), signals_end_command(tmp_path):
        fail()


@pytest.mark.parametrize("has_ranks", [False, True])
def test_clean_up_is_not_interrupted_by_its_own_signal(has_ranks: bool, tmp_path: Path) -> None:
    cleaned_up = False
    with pytest.raises(SystemExit), signals_end_command(tmp_path if has_ranks else None):  # noqa: PT012
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            time.sleep(0.8)
            cleaned_up = True
    assert cleaned_up


def test_the_command_ends_when_ranks_do_not_stop_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ACCEPTS_STOP).touch()
    monkeypatch.setattr("lockstep.launch.stop_handler.SHUTDOWN_TIMEOUT", 0.5)
    with pytest.raises(SystemExit) as ended, signals_end_command(tmp_path):  # noqa: PT012
        signal.raise_signal(signal.SIGHUP)
        time.sleep(5)
    assert ended.value.code == 129


def test_sigalrm_is_left_to_the_user(tmp_path: Path) -> None:
    (tmp_path / ACCEPTS_STOP).touch()
    received: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: received.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with signals_end_command(tmp_path) as handler:
            time.sleep(0.4)
            assert (received, handler.requests) == ([signal.SIGALRM], [])
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            signal.raise_signal(signal.SIGTERM)
        time.sleep(0.4)
        assert received == [signal.SIGALRM] * 2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_ignored_signals_stay_ignored() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_end_command():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert callable(signal.getsignal(signal.SIGQUIT))
        assert signal.getsignal(signal.SIGQUIT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


RANK = """
import os, signal, subprocess, sys, time
from pathlib import Path
from lockstep.launch.topology import STOP_REQUESTED
from lockstep.launch.signals import ENDING, block_signals, ignore_signals

def child():
    process = os.fork()
    if process == 0:
        time.sleep(30)
        os._exit(0)
    os.kill(process, signal.SIGTERM)
    return process

with block_signals():
    rank = os.fork()
if rank:
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]))
signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # as it comes from the fork server
for number in ENDING:
    os.kill(os.getpid(), number)
folder = Path(sys.argv[1])
ignore_signals(folder)
for number in ENDING:
    os.kill(os.getpid(), number)
status = subprocess.run(["cat", "/proc/self/status"], stdout=subprocess.PIPE, text=True).stdout
masks = {key: int(value, 16) for key, _, value in (line.partition(":") for line in status.splitlines())
         if key[:3] == "Sig" and key != "SigQ"}
bits = sum(1 << (number - 1) for number in ENDING)
assert masks["SigBlk"] & bits == masks["SigIgn"] & bits == masks["SigCgt"] & bits == 0, masks
assert os.waitstatus_to_exitcode(os.waitpid(child(), 0)[1]) == -signal.SIGTERM, "a rank may end its own"
(folder / STOP_REQUESTED).touch()
worker = child()
time.sleep(1.5)
assert os.waitpid(worker, os.WNOHANG) == (0, 0), "what went to all processes does not end it"
os.kill(worker, signal.SIGKILL)
os.waitpid(worker, 0)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to read a process's masks")
@pytest.mark.fresh
def test_processes_of_a_rank_have_the_default_signals(command: Command, tmp_path: Path) -> None:
    ended = command(sys.executable, "-c", RANK, str(tmp_path))
    assert ended.status == 0, ended.err
