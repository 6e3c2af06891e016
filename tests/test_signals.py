"""The command is told to end: it stops after a step with a checkpoint, from which a run ends as one nobody told."""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from lockstep.launch.stop_handler import signals_end_command
from lockstep.launch.topology import ACCEPTS_STOP, STOP_REQUESTED
from lockstep.run_files import METRICS, RECORD
from tests.conftest import ROOT, Command
from tests.fault_injection.command import SMALL, Faulty

LONG = (*SMALL, "max_epochs=40", "model.hidden=[64]", "scheduler=onecycle")
"""Two hundred steps, some seconds of them."""

SPLIT = tuple(word.replace("model=mlp", "model=split_cnn") for word in SMALL if "hidden" not in word)

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
Leaves = tuple[str, list[str]]


def wait_until(happened: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it never came to it"
        time.sleep(0.02)


def trains(faulty: Faulty) -> bool:
    """Whether it has saved a checkpoint."""
    return (faulty.run_dir / "checkpoints" / "last.ckpt").is_file()


def leaves(run_dir: Path) -> Leaves:
    """The digest of the weights, and the record behind the line that says of which run it is."""
    metrics: dict[str, Any] = json.loads((run_dir / METRICS).read_text())
    return metrics["digest"], (run_dir / RECORD).read_text().splitlines()[1:]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Leaves]:
    """What a run leaves that nobody told to end, by the number of its ranks."""
    known: dict[int, Leaves] = {}

    def find(ranks: int) -> Leaves:
        if ranks not in known:
            start = "single" if ranks == 1 else "ddp"
            whole = Faulty(tmp_path_factory.mktemp("whole") / start, start, "raw", overrides=LONG)
            ended = whole.wait()
            assert (ended.status, ended.err) == (0, "")
            known[ranks] = leaves(whole.run_dir)
        return known[ranks]

    return find


def check_goes_on(stopped: Faulty, expected: Leaves) -> None:
    """Its own checkpoint is that of the step where it stopped; from there it ends as if nothing had been."""
    step = stopped.saved_step()
    assert step is not None
    assert 0 < step < 200, "it was told in the middle"
    assert stopped.curve() >= {*range(1, step + 1)}
    again = Faulty(
        stopped.folder / "again", stopped.start, stopped.engine, overrides=(*LONG, "resume=true"), run=stopped.run_dir
    )
    ended = again.wait()
    assert ended.status == 0, ended.err
    assert leaves(stopped.run_dir) == expected
    assert again.left() == []


CASES = [
    *(("single", "raw", signal.SIGINT), ("single", "lightning", signal.SIGTERM)),
    *(("ddp", "lightning", signal.SIGINT), ("ddp", "raw", signal.SIGTERM)),
    *(("ddp_spawn", "raw", signal.SIGINT), ("ddp_spawn", "lightning", signal.SIGTERM)),
]
ALWAYS = [("ddp", "lightning", signal.SIGINT)]


@pytest.mark.parametrize(
    ("start", "engine", "number"),
    [pytest.param(*case, marks=() if case in ALWAYS else pytest.mark.slow) for case in CASES],
)
def test_the_first_signal_stops_it_with_a_checkpoint(
    start: str, engine: str, number: signal.Signals, uninterrupted: Callable[[int], Leaves], tmp_path: Path
) -> None:
    faulty = Faulty(tmp_path / "run", start, engine, overrides=LONG)
    wait_until(lambda: trains(faulty))
    told = time.time()
    if number == signal.SIGINT:
        os.killpg(faulty.process.pid, number)  # as a terminal does: to every process
    else:
        faulty.process.send_signal(number)
    ended = faulty.wait()
    assert time.time() - told < 10
    assert ended.status == STATUS[number], ended.err
    assert faulty.left() == []
    sentence = f"{number.name}: stopped after step {faulty.saved_step()}, which its checkpoint holds; "
    assert ended.err.startswith(sentence), ended.err
    assert ended.err.count("\n") == 1
    check_goes_on(faulty, uninterrupted(1 if start == "single" else 2))


@pytest.mark.skipif(shutil.which("timeout") is None, reason="needs timeout(1)")
def test_timeout_stops_it_with_a_checkpoint(tmp_path: Path) -> None:
    """It tells the command, and then its whole group: two signals at once are one. SIGALRM is how its own time ends."""
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
    *(("ddp", "lightning", "SIGINT@command:composing"), ("ddp", "lightning", "SIGTERM@1:starting")),
    *(("ddp_spawn", "lightning", "SIGTERM@1:step:7"), ("ddp_spawn", "raw", "SIGQUIT@0:test")),
    *(("single", "lightning", "SIGHUP@0:step:7"), ("dp", "raw", "SIGTERM@0:step:7")),
    ("model_parallel", "lightning", "SIGQUIT@0:saving:2"),
]
"""Each start and each moment; dp and model_parallel are one process, as single is."""


@pytest.mark.parametrize(
    ("start", "engine", "fault"),
    [pytest.param(*case, marks=() if case in TO_ALL[:2] else pytest.mark.slow) for case in TO_ALL],
)
def test_a_signal_to_all_processes(start: str, engine: str, fault: str, tmp_path: Path) -> None:
    """The command alone decides what it comes to: the ranks and the fork server take no notice of it."""
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
    [
        *(((str(ROOT / "train.py"),), imports) for imports in (2, 150, 300)),
        *((("-m", "lockstep.compare"), imports) for imports in (2, 60)),
        *((("-m", "lockstep.collectives"), imports) for imports in (2, 60, 150)),
    ],
)
def test_ctrl_c_while_it_imports_shows_no_traceback(program: tuple[str, ...], imports: int, command: Command) -> None:
    """Behind so many imports, counted from the command's first, of `signal`; before it Python itself starts."""
    process = command.popen(sys.executable, "-X", "importtime", *program, "--help")
    assert process.stderr is not None
    begun = False
    while line := process.stderr.readline():
        begun = begun or line.endswith(" signal\n")
        imports -= begun
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


def test_two_signals_at_once_are_one_and_a_later_one_ends_it(tmp_path: Path) -> None:
    (tmp_path / ACCEPTS_STOP).touch()
    cleaned_up = False
    with pytest.raises(SystemExit) as ended, signals_end_command(tmp_path) as handler:  # noqa: PT012  # its clean-up is tested
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        assert handler.requests == [signal.SIGTERM]
        assert (tmp_path / STOP_REQUESTED).exists()
        time.sleep(0.4)
        try:
            signal.raise_signal(signal.SIGHUP)
        finally:
            signal.raise_signal(signal.SIGTERM)  # what is begun then, the end of the ranks, is not cut short
            cleaned_up = True
    assert ended.value.code == 129
    assert cleaned_up


def test_a_key_that_is_held_down_comes_to_a_second_signal(tmp_path: Path) -> None:
    (tmp_path / ACCEPTS_STOP).touch()
    held, cut_short = 0, False
    with pytest.raises(SystemExit), signals_end_command(tmp_path):  # noqa: PT012  # its clean-up is tested
        try:
            for held in range(20):  # noqa: B007
                time.sleep(0.05)
                signal.raise_signal(signal.SIGINT)
        finally:
            cut_short = True
            for _ in range(20 - held):
                time.sleep(0.05)
                signal.raise_signal(signal.SIGINT)
            cut_short = False
    assert 0 < held < 19
    assert not cut_short, "what is begun then"


def test_an_end_that_a_library_loses_comes_again(tmp_path: Path) -> None:
    """As OmegaConf does: its own clean-up fails where it is interrupted, and who called it catches that."""
    for handled in (signals_end_command(), signals_end_command(tmp_path)):
        reached = False
        with pytest.raises(SystemExit) as ended, handled:  # noqa: PT012  # its clean-up is tested
            try:
                try:
                    signal.raise_signal(signal.SIGTERM)
                finally:
                    raise AttributeError("of its clean-up")
            except AttributeError:
                time.sleep(0.6)  # that error is being handled, the end with it
                reached = True
            time.sleep(10)
            reached = False
        assert ended.value.code == 128 + signal.SIGTERM
        assert reached


def test_an_end_that_is_lost_at_the_very_end_comes_again(tmp_path: Path) -> None:
    for handled in (signals_end_command(), signals_end_command(tmp_path)):
        with pytest.raises(SystemExit) as ended, handled, suppress(SystemExit):
            signal.raise_signal(signal.SIGHUP)
        assert ended.value.code == 128 + signal.SIGHUP


def test_an_error_that_follows_from_the_end_does_not_hide_it(tmp_path: Path) -> None:
    """Once there are ranks it does: that one of them cannot be ended, say."""

    def fails() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit:
            raise RuntimeError("of its clean-up") from None

    with pytest.raises(SystemExit) as ended, signals_end_command():
        fails()
    assert ended.value.code == 128 + signal.SIGTERM
    with pytest.raises(RuntimeError, match="of its clean-up"), signals_end_command(tmp_path):
        fails()


def test_clean_up_is_not_cut_short_by_its_own_signal(tmp_path: Path) -> None:
    cleaned_up = 0

    @contextmanager
    def cleans_up() -> Iterator[None]:
        try:
            yield
        finally:
            time.sleep(0.8)
            nonlocal cleaned_up
            cleaned_up += 1

    for handled in (signals_end_command(), signals_end_command(tmp_path)):
        with pytest.raises(SystemExit), handled, cleans_up():
            signal.raise_signal(signal.SIGTERM)
    assert cleaned_up == 2


def test_the_ranks_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ACCEPTS_STOP).touch()
    monkeypatch.setattr("lockstep.launch.stop_handler.SHUTDOWN_TIMEOUT", 0.5)
    with pytest.raises(SystemExit) as ended, signals_end_command(tmp_path):  # noqa: PT012  # that it comes in its sleep is tested
        signal.raise_signal(signal.SIGHUP)
        time.sleep(5)
    assert ended.value.code == 129


def test_an_alarm_stays_the_users(tmp_path: Path) -> None:
    (tmp_path / ACCEPTS_STOP).touch()
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with signals_end_command(tmp_path) as handler:
            time.sleep(0.4)
            assert (heard, handler.requests) == ([signal.SIGALRM], [])
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            signal.raise_signal(signal.SIGTERM)
        time.sleep(0.4)
        assert heard == [signal.SIGALRM] * 2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_what_was_ignored_stays_so() -> None:
    """As nohup asks for."""
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
told = child()
time.sleep(1.5)
assert os.waitpid(told, os.WNOHANG) == (0, 0), "what went to all processes does not end it"
os.kill(told, signal.SIGKILL)
os.waitpid(told, 0)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to read a process's masks")
@pytest.mark.fresh
def test_what_a_rank_starts_has_the_usual_signals(command: Command, tmp_path: Path) -> None:
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
def test_torchrun_stops_it_with_a_checkpoint(
    engine: str,
    number: signal.Signals,
    whom: Callable[[int, int], None],
    uninterrupted: Callable[[int], Leaves],
    tmp_path: Path,
) -> None:
    """torchrun passes the signal on, and ends with a status of its own."""
    faulty = Faulty(tmp_path / "run", "torchrun", engine, overrides=LONG)
    wait_until(lambda: trains(faulty))
    told = time.time()
    whom(faulty.process.pid, number)
    ended = faulty.wait()
    assert time.time() - told < 10
    assert ended.status not in (0, None)
    assert faulty.left() == []
    assert (
        ended.err.count(f"{number.name}: stopped after step {faulty.saved_step()}, which its checkpoint holds; ") == 1
    ), ended.err
    check_goes_on(faulty, uninterrupted(2))


@pytest.mark.parametrize("start", ["ddp", pytest.param("ddp_spawn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("twice", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_ranks_that_cannot_stop_are_ended_by_force(start: str, twice: bool, tmp_path: Path) -> None:
    """A rank that the system has stopped heeds nothing: the second signal ends it at once, or the time given does."""
    faulty = Faulty(tmp_path, start, "raw", "stop@1:step:20", LONG)
    wait_until(lambda: faulty.fault_time)
    faulty.process.send_signal(signal.SIGINT)
    told = time.time()
    if twice:
        time.sleep(0.5)
        assert faulty.process.poll() is None, "the first waits for them"
        faulty.process.send_signal(signal.SIGTERM)
    ended = faulty.wait()
    took = time.time() - told
    assert (took < 5) if twice else (7 < took < 10), took
    assert ended.status == (143 if twice else 130)
    assert "Traceback" not in ended.err
    assert faulty.left() == []
    assert faulty.saved_step() == 18


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
@pytest.mark.fresh
def test_before_it_trains_a_signal_just_ends_it(number: signal.Signals, tmp_path: Path) -> None:
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
def test_of_a_command_that_was_killed_nothing_is_left(start: str, tmp_path: Path) -> None:
    faulty = Faulty(tmp_path, start, "raw", overrides=LONG)
    wait_until(lambda: trains(faulty))
    faulty.process.kill()
    faulty.wait()
    assert faulty.left(patience=5) == []
    assert faulty.saved_step() is not None
