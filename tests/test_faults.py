"""A rank fails: the command ends soon, names the rank and the reason, leaves no process, and its checkpoint loads."""

import csv
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pytest

from lockstep.targets.frames import MEMORY_HINT
from tests.conftest import Ended
from tests.fault_injection.command import SMALL, Faulty

TIMEOUT, UNDER_TORCHRUN = 6, 12
"""Of the group: ranks of torchrun are new interpreters, which a busy machine may start seconds apart."""
LIMIT = 10.0
"""Seconds that a command has to end in, from the fault; from the timeout of its group, where a rank is stopped."""

AT_ONCE = 2
KINDS = {
    "raise": "ZeroDivisionError: on purpose",
    "exit": "it ended with exit status 3 and no traceback",
    "kill": f"it was ended by SIGKILL (the system does so when memory runs out: {MEMORY_HINT})",
    "stop": "it was stopped (by SIGSTOP, say) and did not answer within ",
    "memory": f"Memory ran out: {MEMORY_HINT}.",
}
BY_TORCHRUN = {"exit": "exitcode  : 3 (", "kill": "Signal 9 (SIGKILL) received"}
"""What torchrun reports of a rank that leaves no message."""

MOMENTS = {"starting": None, "step:5": 4, "validation:3": 8, "saving:2": 2}
"""With the step of the newest valid checkpoint: the third pass through a layer validates the second epoch."""

STARTS = ["ddp", "ddp_spawn", "torchrun"]
ENGINES = ["raw", "lightning"]


@dataclass(frozen=True)
class Cell:
    kind: str
    rank: int
    moment: str
    start: str

    @property
    def engine(self) -> str:
        """In turn, so that every kind at every moment is tried with both engines."""
        places = [*KINDS].index(self.kind), self.rank, [*MOMENTS].index(self.moment), STARTS.index(self.start)
        return ENGINES[sum(places) % 2]

    @property
    def timeout(self) -> int:
        return UNDER_TORCHRUN if self.start == "torchrun" else TIMEOUT

    @property
    def limit(self) -> float:
        """torchrun itself takes seconds to end behind its ranks."""
        limit = 2 * LIMIT if self.start == "torchrun" else LIMIT
        return limit + (self.timeout if self.kind == "stop" else 0)

    @property
    def reason(self) -> str:
        stopped = f"{self.timeout} s (process_group.timeout)" if self.kind == "stop" else ""
        return KINDS[self.kind] + stopped

    def __str__(self) -> str:
        return f"{self.kind}@{self.rank}:{self.moment}-{self.start}-{self.engine}"


def is_tried(cell: Cell) -> bool:
    """Each kind at each moment by one of our own starts, and each second by torchrun; by one rank.

    So that any two of kind, moment, rank, start and engine meet.
    """
    kind, moment = [*KINDS].index(cell.kind), [*MOMENTS].index(cell.moment)
    start = STARTS[(kind + moment // 2) % 2]
    by_torchrun = cell.start == "torchrun" and start == "ddp"
    return cell.rank == (kind // 2 + moment // 2) % 2 and (cell.start == start or by_torchrun)


ALL = [Cell(kind, rank, moment, start) for start in STARTS for moment in MOMENTS for rank in (0, 1) for kind in KINDS]
CELLS = [cell for cell in ALL if is_tried(cell)]
ALWAYS = [
    cell
    for cell in CELLS
    if cell.start != "torchrun"
    and (cell.kind, cell.moment) in {("raise", "step:5"), ("kill", "starting"), ("exit", "validation:3")}
]
"""The few that run without being asked for."""

Ending = tuple[Faulty, Ended, list[object]]


@pytest.fixture(scope="module")
def ending_of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Cell], Ending]]:
    """Two commands at once: most of a command's time is spent waiting, or with one core."""
    callspecs = [getattr(item, "callspec", None) for item in request.session.items]
    cells = [spec.params["cell"] for spec in callspecs if spec and "cell" in spec.params]

    def run(cell: Cell, folder: Path) -> Ending:
        overrides = (*SMALL, f"process_group.timeout={cell.timeout}")
        faulty = Faulty(folder, cell.start, cell.engine, f"{cell.kind}@{cell.rank}:{cell.moment}", overrides)
        return faulty, faulty.wait(), faulty.left()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        endings = {cell: pool.submit(run, cell, tmp_path_factory.mktemp("cell")) for cell in cells}
        yield lambda cell: endings[cell].result()
        for ending in endings.values():
            ending.cancel()


def test_all_pairs_are_covered() -> None:
    def seen(cells: list[Cell]) -> set[tuple[object, object]]:
        values = [(cell.kind, cell.moment, cell.rank, cell.start, cell.engine) for cell in cells]
        return {pair for value in values for pair in combinations(value, 2)}

    assert seen(CELLS) == seen(ALL), seen(ALL) - seen(CELLS)
    assert (len(CELLS), len(ALWAYS)) == (30, 3)


@pytest.mark.parametrize(
    "cell", [pytest.param(cell, marks=() if cell in ALWAYS else pytest.mark.slow, id=str(cell)) for cell in CELLS]
)
def test_a_rank_fails(cell: Cell, ending_of: Callable[[Cell], Ending]) -> None:
    faulty, ended, left = ending_of(cell)
    print(f"\n{cell}: {ended.seconds:.1f} s from the fault to the end")
    assert faulty.fault_time, f"no failure: {ended.out}\n{ended.err}"
    assert ended.status == 1
    assert ended.seconds < cell.limit
    assert left == []
    check_message(cell, ended.err)
    saved = faulty.saved_step()
    assert saved == MOMENTS[cell.moment]
    if saved is not None:
        assert faulty.curve() >= {*range(1, saved + 1)}, "all that the checkpoint knows of was logged"


def check_message(cell: Cell, err: str) -> None:
    """Check that the failing rank is named, with its traceback, once; torchrun shows it in its report."""
    traced = cell.kind in ("raise", "memory")
    if cell.start != "torchrun":
        assert err.startswith(f"rank {cell.rank} failed: "), err
        assert cell.reason in err.splitlines()[-1]
        assert (err.count("failed: "), err.count("Traceback")) == (1, int(traced)), err
        return
    reason = BY_TORCHRUN.get(cell.kind, cell.reason)
    _, _, cause = err.partition("Root Cause (first observed failure):")
    assert reason in cause, err
    assert err.count(reason) == 1, err
    assert f"rank {cell.rank} failed: " in cause or f"rank      : {cell.rank} " in cause, err
    assert err.count("Traceback") == 1 + traced, err


SERVER = "the fork server, from which all ranks start, is lost: "
EARLY = "failed: it ended with status 0 before its work was done"
TRAINS_LONG = ("max_epochs=400", "logger=none")
LOST = [
    *(("ddp", "raw", "server@1:step:7", SERVER), ("single", "lightning", "sys.exit@0:step:7", f"rank 0 {EARLY}")),
    *(("ddp_spawn", "raw", "server@0:starting", SERVER), ("dp", "lightning", "server@0:saving:2", SERVER)),
    *(("ddp", "lightning", "end@1:step:7", f"rank 1 {EARLY}"), ("single", "raw", "end@0:test", f"rank 0 {EARLY}")),
]


@pytest.mark.parametrize(
    ("start", "engine", "fault", "reason"),
    [pytest.param(*case, marks=() if case in LOST[:2] else pytest.mark.slow) for case in LOST],
)
def test_a_lost_process_ends_the_command(start: str, engine: str, fault: str, reason: str, tmp_path: Path) -> None:
    faulty = Faulty(tmp_path, start, engine, fault, (*SMALL, *TRAINS_LONG))
    ended = faulty.wait()
    assert ended.seconds < LIMIT
    assert ended.status == 1
    assert ended.err.startswith(reason), ended.err
    assert ended.err.count("\n") == 1
    assert faulty.left() == []


def test_training_needs_no_job_folder(tmp_path: Path) -> None:
    """The temporary folder may be cleared."""
    faulty = Faulty(tmp_path, "ddp", "raw", "folder@0:step:7")
    ended = faulty.wait()
    assert (ended.status, ended.err) == (0, "")
    assert faulty.left() == []


def test_a_sweep_continues_after_a_killed_rank(tmp_path: Path) -> None:
    """The fault is that of rank 1: a job on one device has none."""
    sweep = ("devices=2,1", "hydra.mode=MULTIRUN", f"hydra.sweep.dir={tmp_path / 'sweep'}", "logger=none")
    faulty = Faulty(tmp_path / "own", "ddp", "raw", "kill@1:step:5", (*SMALL, *sweep))
    ended = faulty.wait()
    assert ended.status == 1
    assert ended.err == f"job 0 failed: rank 1 failed: {KINDS['kill']}\n"
    assert "sweep: 1 finished, 0 refused, 1 failed" in ended.out
    with (tmp_path / "sweep" / "sweep.csv").open() as file:
        killed, whole = csv.DictReader(file)
    assert killed["reason"] == f"failed: rank 1 failed: {KINDS['kill']}"
    assert (killed["test_acc"], whole["reason"]) == ("", "")
    assert float(whole["test_acc"]) > 0
    assert "failed: rank 1 failed: it was ended by SIGKILL" in ended.out
    assert faulty.left() == []
