"""What ranks see, with primitives that are broken on purpose: each fault comes out as what it is, and nothing hangs."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.collectives import calls
from lockstep.collectives.entry import Primitive
from lockstep.collectives.guide import ENGINE, guide
from lockstep.collectives.judge import rows
from lockstep.collectives.primitives import PRIMITIVES
from lockstep.collectives.ranks import Report, take_part
from lockstep.collectives.tour import Tour, Work, work_of
from lockstep.launch import RankContext
from lockstep.plan import Plan
from lockstep.schemas import ProcessGroup
from tests.rank_helpers import on_ranks

MakePlan = Callable[..., Plan]
BY_NAME = {primitive.name: primitive for primitive in PRIMITIVES}
LIMIT = 3.0


def half_a_ring(given: Tensor, taken: Tensor | None, root: int) -> None:
    """A ring all-reduce that forgets its last chunk: one rank of all is wrong, in one number."""
    calls.ring(given, taken, root)
    if dist.get_rank() == dist.get_world_size() - 1:
        given[-1] = 0


def not_a_number(given: Tensor, taken: Tensor | None, root: int) -> None:
    """Rank 1 is left with what was in its memory."""
    dist.all_reduce(given)
    if dist.get_rank() == 1:
        given[0], given[1] = float("nan"), float("inf")


def no_barrier(given: Tensor, taken: Tensor | None, root: int) -> None:
    """Comes late, counts itself in, and does not wait."""
    store = dist.distributed_c10d._get_default_store()
    time.sleep(given.item())
    store.add("collectives/barrier", 1)
    given.fill_(store.add("collectives/barrier", 0))


def refused(given: Tensor, taken: Tensor | None, root: int) -> None:
    raise RuntimeError("it is not implemented")


def refused_by_one(given: Tensor, taken: Tensor | None, root: int) -> None:
    if dist.get_rank() == 1:
        raise RuntimeError("it is not implemented")
    dist.all_reduce(given)


FAULTS: dict[str, list[Primitive]] = {
    "ring": [replace(BY_NAME["ring all-reduce"], call=half_a_ring), BY_NAME["gather"]],
    "no_number": [replace(BY_NAME["all-reduce (sum)"], call=not_a_number)],
    "barrier": [replace(BY_NAME["barrier"], call=no_barrier), BY_NAME["gather"]],
    "unsupported": [replace(BY_NAME["all-reduce (avg)"], call=refused), BY_NAME["gather"]],
    "broken": [replace(BY_NAME["all-reduce (avg)"], call=refused_by_one), BY_NAME["gather"]],
}


def part_in(name: str, plan: Plan) -> Any:
    group = ProcessGroup("gloo", "auto", LIMIT)
    return take_part(Work(Tour(devices=plan.devices), replace(plan.world, process_group=group)), FAULTS[name])


def ring(plan: Plan, context: RankContext) -> Any:
    return part_in("ring", plan)


def barrier(plan: Plan, context: RankContext) -> Any:
    return part_in("barrier", plan)


def no_number(plan: Plan, context: RankContext) -> Any:
    return part_in("no_number", plan)


def unsupported(plan: Plan, context: RankContext) -> Any:
    return part_in("unsupported", plan)


def broken(plan: Plan, context: RankContext) -> Any:
    return part_in("broken", plan)


@pytest.mark.parametrize(
    ("task", "theory"),
    [
        (ring, ["holds", "holds", "fails", "holds", "holds", "holds"]),
        (no_number, ["holds", "fails", "holds"]),
        (barrier, ["fails", "fails", "holds", "holds", "holds", "holds"]),
        (unsupported, ["–", "–", "–", "holds", "holds", "holds"]),
        (broken, ["fails", "fails", "fails", "–", "–", "–"]),
    ],
)
def test_a_fault_is_what_it_is(
    make_plan: MakePlan, task: Callable[[Plan, RankContext], Any], theory: list[str]
) -> None:
    plan = make_plan(
        *("strategy=ddp", "devices=3", "batch_size=12", "accelerator=cpu", f"process_group.timeout={LIMIT}")
    )
    began = time.monotonic()
    report: Report = on_ranks(plan, task)  # type: ignore[assignment]
    table = rows(FAULTS[task.__name__], report.seen, 3, 0, "gloo")
    assert [row.theory for row in table] == theory
    assert time.monotonic() - began < 2 * LIMIT + 15
    if task is no_number:
        assert table[1].after.startswith("nan inf")
    if task is unsupported:
        assert table[0].explain == "gloo: it is not implemented"


def run(work: Work, context: RankContext) -> Report:
    """An engine for the whole tour, in which the ring is broken."""
    broken = {"ring all-reduce": replace(BY_NAME["ring all-reduce"], call=half_a_ring)}
    return take_part(work, [broken.get(primitive.name, primitive) for primitive in PRIMITIVES])


@pytest.mark.parametrize(("engine", "status"), [(__name__, 1), (ENGINE, 0)])
def test_a_broken_primitive_is_the_exit_status(
    engine: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert guide(work_of(Tour(devices=2)), engine) == status
    said = capsys.readouterr().out
    assert ("theory holds in 28 rows and fails in 1 (ring all-reduce)" in said) == bool(status)


def sends_and_receives(plan: Plan, context: RankContext) -> Any:
    """The ranks' own tensors, seen from a rank: what is given stays as it was where the result goes elsewhere."""
    given, taken = torch.full((2,), float(context.rank)), torch.zeros(2 * context.world_size)
    calls.all_gather(given, taken, 0)
    return {"given": given.tolist(), "taken": taken.tolist()}


def test_what_is_given_stays(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp_spawn", "devices=2", "batch_size=12", "accelerator=cpu")
    returned: Any = on_ranks(plan, sends_and_receives)
    assert returned == {"given": [0.0, 0.0], "taken": [0.0, 0.0, 1.0, 1.0]}
