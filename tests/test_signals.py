"""Signals stop training after a step with a checkpoint, from which a run resumes to the same end."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lockstep.launch.stop_handler import signals_end_command
from lockstep.launch.topology import ACCEPTS_STOP, STOP_REQUESTED
from tests.conftest import ROOT, Command
from tests.fault_injection.command import SMALL, Faulty, Leaves, leaves

LONG = (*SMALL, "max_epochs=40", "model.hidden=[64]", "scheduler=onecycle")
"""Two hundred steps, some seconds of them."""

SPLIT = tuple(word.replace("model=mlp", "model=split_cnn") for word in SMALL if "hidden" not in word)

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def trains(faulty: Faulty) -> bool:
    """Whether it has saved a checkpoint."""
    return (faulty.run_dir / "checkpoints" / "last.ckpt").is_file()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Leaves]:
    """Return what an uninterrupted run leaves, by the number of its ranks."""
    cache: dict[int, Leaves] = {}

    def find(ranks: int) -> Leaves:
        if ranks not in cache:
            start = "single" if ranks == 1 else "ddp"
            full = Faulty(tmp_path_factory.mktemp("full") / start, start, "raw", overrides=LONG)
            ended = full.wait()
            assert (ended.status, ended.err) == (0, "")
            cache[ranks] = leaves(full.run_dir)
        return cache[ranks]

    return find


def check_resume(stopped: Faulty, expected: Leaves) -> None:
    """Check that the run stopped with a checkpoint of its last step, and resumes from there to the expected end."""
    step = stopped.saved_step()
    assert step is not None
    assert 0 < step < 200, "it stopped in the middle"
    assert stopped.curve() >= {*range(1, step + 1)}
    again = Faulty(
        stopped.folder / "again", stopped.start, stopped.engine, overrides=(*LONG, "resume=true"), run=stopped.run_dir
    )
    ended = again.wait()
    assert ended.status == 0, ended.err
    assert leaves(stopped.run_dir) == expected
    assert again.left() == []


CASES = [
    ("ddp", "raw", signal.SIGTERM),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("single", "raw", signal.SIGINT),
            ("single", "lightning", signal.SIGTERM),
            ("ddp", "lightning", signal.SIGINT),
            ("ddp_spawn", "raw", signal.SIGINT),
        )
    ),
]


@pytest.mark.parametrize(("start", "engine", "number"), CASES)
def test_the_first_signal_stops_training_with_a_checkpoint(
    start: str, engine: str, number: signal.Signals, uninterrupted: Callable[[int], Leaves], tmp_path: Path
) -> None:
    faulty = Faulty(tmp_path / "run", start, engine, overrides=LONG)
    wait_until(lambda: trains(faulty))
    signalled = time.time()
    if number == signal.SIGINT:
        os.killpg(faulty.process.pid, number)  # as a terminal does: to every process
    else:
        faulty.process.send_signal(number)
    ended = faulty.wait()
    assert time.time() - signalled < 10
    assert ended.status == STATUS[number], ended.err
    assert faulty.left() == []
    sentence = f"{number.name}: stopped after step {faulty.saved_step()}, which its checkpoint holds; "
    assert ended.err.startswith(sentence), ended.err
    assert ended.err.count("\n") == 1
    check_resume(faulty, uninterrupted(1 if start == "single" else 2))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("timeout") is None, reason="needs timeout(1)")
def test_timeout_stops_training_with_a_checkpoint(tmp_path: Path) -> None:
    """timeout(1) signals the command, and then its group: two signals count as one. SIGALRM ends its time."""
    faulty = Faulty(tmp_path, "ddp", "raw", overrides=LONG, under=("timeout", "3600"))
    wait_until(lambda: trains(faulty))
    faulty.process.send_signal(signal.SIGALRM)
    ended = faulty.wait()
    assert ended.status == 124
    step = faulty.saved_step()
    assert step is not None
    assert 0 < step < 200
    assert ended.err.startswith(f"SIGTERM: stopped after step {step}, which its checkpoint holds; "), ended.err
    assert ended.err.count("\n") == 1
    assert faulty.left() == []


TRAINING = ("step:7", "validation:2", "saving:2")
PROMPT = ("composing", "starting", "test", "writing")
"""Moments at which there is nothing to save."""

TO_ALL = [
    *(("ddp", "lightning", "SIGQUIT@1:validation:2"), ("ddp_spawn", "raw", "SIGHUP@1:starting")),
    *(("single", "raw", "SIGTERM@0:test"), ("ddp", "raw", "SIGTERM@command:writing")),
    *(("ddp", "raw", "SIGTERM@1:step:7"), ("ddp", "raw", "SIGHUP@0:saving:2")),
    *(("ddp", "lightning", "SIGINT@command:composing"), ("single", "lightning", "SIGHUP@0:step:7")),
    *(("ddp_spawn", "raw", "SIGQUIT@0:test"), ("model_parallel", "lightning", "SIGQUIT@0:saving:2")),
]
"""Every start and every moment; model_parallel is one process, like single."""


@pytest.mark.parametrize(
    ("start", "engine", "fault"),
    [pytest.param(*case, marks=() if case in TO_ALL[:2] else pytest.mark.slow) for case in TO_ALL],
)
def test_a_signal_to_all_processes(start: str, engine: str, fault: str, tmp_path: Path) -> None:
    """Only the command acts on it: the ranks and the fork server ignore it."""
    small = SPLIT if start == "model_parallel" else SMALL
    faulty = Faulty(tmp_path, start, engine, fault, (*small, "max_epochs=60"))
    ended = faulty.wait()
    name, _, position = fault.partition("@")
    number, moment = signal.Signals[name], position.partition(":")[2]
    assert faulty.fault_time
    assert ended.seconds < 10
    assert ended.status == 128 + number, ended.err
    assert faulty.left() == []
    if moment in TRAINING:
        sentence = f"{name}: stopped after step {faulty.saved_step()}, which its checkpoint holds; "
        assert ended.err.startswith(sentence), ended.err
        assert ended.err.count("\n") == 1
    else:
        assert moment in PROMPT
        assert ended.err == ""


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


@pytest.mark.parametrize(
    ("engine", "number", "whom"),
    [
        pytest.param("lightning", signal.SIGTERM, os.kill, marks=pytest.mark.slow),
        pytest.param("raw", signal.SIGINT, os.killpg, marks=pytest.mark.slow),
    ],
    ids=["SIGTERM", "SIGINT to all"],
)
def test_torchrun_stops_training_with_a_checkpoint(
    engine: str,
    number: signal.Signals,
    whom: Callable[[int, int], None],
    uninterrupted: Callable[[int], Leaves],
    tmp_path: Path,
) -> None:
    faulty = Faulty(tmp_path / "run", "torchrun", engine, overrides=LONG)
    wait_until(lambda: trains(faulty))
    signalled = time.time()
    whom(faulty.process.pid, number)
    ended = faulty.wait()
    assert time.time() - signalled < 10
    assert ended.status not in (0, None)
    assert faulty.left() == []
    assert (
        ended.err.count(f"{number.name}: stopped after step {faulty.saved_step()}, which its checkpoint holds; ") == 1
    ), ended.err
    check_resume(faulty, uninterrupted(2))


@pytest.mark.parametrize("start", ["ddp", pytest.param("ddp_spawn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("twice", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_ranks_that_cannot_stop_are_killed(start: str, twice: bool, tmp_path: Path) -> None:
    """A rank that SIGSTOP has stopped ends at once after a second signal, or after SHUTDOWN_TIMEOUT."""
    faulty = Faulty(tmp_path, start, "raw", "stop@1:step:20", LONG)
    wait_until(lambda: faulty.fault_time)
    faulty.process.send_signal(signal.SIGINT)
    signalled = time.time()
    if twice:
        time.sleep(0.5)
        assert faulty.process.poll() is None, "the first waits for them"
        faulty.process.send_signal(signal.SIGTERM)
    ended = faulty.wait()
    took = time.time() - signalled
    assert (took < 5) if twice else (7 < took < 10), took
    assert ended.status == (143 if twice else 130)
    assert "Traceback" not in ended.err
    assert faulty.left() == []
    assert faulty.saved_step() == 18


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
@pytest.mark.fresh
def test_a_signal_before_training_ends_the_command(number: signal.Signals, tmp_path: Path) -> None:
    faulty = Faulty(tmp_path, "ddp", "raw", overrides=LONG)
    wait_until(lambda: [*faulty.temporary.glob("lockstep-*/job-*")])
    os.killpg(faulty.process.pid, number)
    ended = faulty.wait()
    assert ended.status == STATUS[number]
    assert ended.err == ""
    assert faulty.left() == []


@pytest.mark.parametrize(
    "start", ["ddp", *(pytest.param(start, marks=pytest.mark.slow) for start in ("single", "ddp_spawn", "torchrun"))]
)
def test_a_killed_command_leaves_nothing(start: str, tmp_path: Path) -> None:
    faulty = Faulty(tmp_path, start, "raw", overrides=LONG)
    wait_until(lambda: trains(faulty))
    faulty.process.kill()
    faulty.wait()
    assert faulty.left(patience=5) == []
    assert faulty.saved_step() is not None
