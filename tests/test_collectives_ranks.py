"""What ranks see of primitives that are broken on purpose: each fault is reported as what it is, and nothing hangs."""

import time
from dataclasses import replace
from typing import Any

import torch.distributed as dist
from torch import Tensor

from lockstep.collectives.primitives import PRIMITIVES
from lockstep.collectives.ranks import TourPayload, TourResult, take_tour
from lockstep.collectives.verify import Check, check_all
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from tests.conftest import MakePlan
from tests.rank_helpers import on_ranks

BY_NAME = {primitive.name: primitive for primitive in PRIMITIVES}


def incomplete_ring(input: Tensor, output: Tensor, root: int) -> None:
    """A ring all-reduce that forgets its last chunk: one rank of all is wrong, in one number."""
    BY_NAME["ring all-reduce"].call(input, output, root)
    if dist.get_rank() == dist.get_world_size() - 1:
        input[-1] = 0


def not_a_number(input: Tensor, output: Tensor, root: int) -> None:
    """Rank 1 is left with what was in its memory."""
    dist.all_reduce(input)
    if dist.get_rank() == 1:
        input[0], input[1] = float("nan"), float("inf")


def no_barrier(input: Tensor, output: Tensor, root: int) -> None:
    """Arrives late, counts itself, and does not wait."""
    store = dist.distributed_c10d._get_default_store()
    time.sleep(input.item())
    store.add("collectives/barrier", 1)
    input.fill_(store.add("collectives/barrier", 0))


def writes_to_input(input: Tensor, output: Tensor, root: int) -> None:
    """The result lands where it does not belong."""
    dist.all_gather_into_tensor(output.clone(), input)


FAULTS = [
    replace(BY_NAME["ring all-reduce"], call=incomplete_ring),
    replace(BY_NAME["all-reduce (sum)"], call=not_a_number),
    replace(BY_NAME["barrier"], call=no_barrier),
    replace(BY_NAME["all-gather"], call=writes_to_input),
    BY_NAME["gather"],
]


def tour_of_faults(plan: Plan, context: RankContext) -> Any:
    return take_tour(TourPayload(plan.world), FAULTS)


def test_each_fault_is_reported_as_what_it_is(make_plan: MakePlan) -> None:
    world = ("strategy=ddp", "devices=3", "batch_size=12", "accelerator=cpu")
    result: TourResult = on_ranks(make_plan(*world), tour_of_faults)  # type: ignore[assignment]
    rows: dict[str, list[Check]] = {}
    for row in check_all(FAULTS, result.observations, 3, 0):
        rows.setdefault(row.primitive, []).append(row)
    assert {name: [row.result for row in checks] for name, checks in rows.items()} == {
        "ring all-reduce": ["pass", "pass", "fail"],
        "all-reduce (sum)": ["pass", "fail", "pass"],
        "barrier": ["fail", "fail", "pass"],
        "all-gather": ["fail", "fail", "fail"],
        "gather": ["pass", "pass", "pass"],
    }
    assert rows["all-reduce (sum)"][1].after.startswith("nan inf")
