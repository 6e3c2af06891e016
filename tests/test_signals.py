"""The command is told to end: it stops after a step with a checkpoint, from which a run ends as one nobody told."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.record import METRICS, RECORD
from tests.faulty_command import SMALL, Faulty

LONG = (*SMALL, "max_epochs=60", "model.hidden=[64]", "scheduler=onecycle")
"""Three hundred steps, some seconds of them."""

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
    assert 0 < step < 300, "it was told in the middle"
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


@pytest.mark.parametrize(
    ("engine", "number", "whom"),
    [
        pytest.param("raw", signal.SIGTERM, os.kill, marks=pytest.mark.slow),
        pytest.param("lightning", signal.SIGINT, os.kill, marks=pytest.mark.slow),
        pytest.param("raw", signal.SIGINT, os.killpg, marks=pytest.mark.slow),
    ],
    ids=["SIGTERM", "SIGINT", "SIGINT to all"],
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
    assert ended.err.count(f"stopped after step {faulty.saved_step()}, which its checkpoint holds; ") == 1, ended.err
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
def test_before_it_trains_a_signal_just_ends_it(number: signal.Signals, tmp_path: Path) -> None:
    faulty = Faulty(tmp_path, "ddp", "raw", overrides=LONG)
    wait_until(lambda: [*faulty.temporary.glob("lockstep-*")])
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
