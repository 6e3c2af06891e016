"""The values that are expected of each primitive, by hand; the check; primitives that are broken on purpose."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch.distributed as dist
from torch import Tensor

from lockstep.collectives import tour
from lockstep.collectives.primitives import PRIMITIVES
from lockstep.collectives.tour import TourPayload, check
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from tests.conftest import MakePlan
from tests.rank_helpers import on_ranks

BY_NAME = {primitive.name: primitive for primitive in PRIMITIVES}
A, B, C = [1.0, 2.0, 3.0], [10.0, 20.0, 40.0], [100.0, -300.0, 200.0]
SUM = [111.0, -278.0, 243.0]
BY_HAND: dict[str, list[list[float] | None]] = {
    "send/recv": [A, A, C],
    "isend/irecv": [C, A, B],
    "batched isend/irecv": [C, A, B],
    "broadcast": [B, B, B],
    "reduce": [None, SUM, None],
    "all-reduce (sum)": [SUM, SUM, SUM],
    "all-reduce (max)": [[100, 20, 200]] * 3,
    "all-reduce (avg)": [[37, -92.66666666666667, 81]] * 3,
    "ring all-reduce": [SUM, SUM, SUM],
    "gather": [None, [*A, *B, *C], None],
    "all-gather": [[*A, *B, *C]] * 3,
    "scatter": [[10], [20], [40]],
    "reduce-scatter": [[111], [-278], [243]],
    "all-to-all": [[1, 10, 100], [2, 20, -300], [3, 40, 200]],
    "barrier": [[3, 3, 3]] * 3,
}
"""For three ranks that hold A, B and C; the second is the root."""


def test_expected_values_equal_those_by_hand() -> None:
    assert {*BY_HAND} == {*BY_NAME}
    for name, numbers in BY_HAND.items():
        for expected, by_hand in zip(BY_NAME[name].expected(np.array([A, B, C]), 1), numbers, strict=True):
            assert (expected is None) == (by_hand is None), name
            if expected is not None and by_hand is not None:
                np.testing.assert_allclose(expected, by_hand, rtol=1e-12, err_msg=name)


def incomplete_ring(input: Tensor, output: Tensor, root: int) -> None:
    """Run the ring all-reduce, but lose the last chunk on the last rank."""
    BY_NAME["ring all-reduce"].call(input, output, root)
    if dist.get_rank() == dist.get_world_size() - 1:
        input[-1] = 0


FAULTS = (
    replace(BY_NAME["ring all-reduce"], call=incomplete_ring),
    *(replace(primitive, call=lambda *_: None) for primitive in PRIMITIVES),
)


def tour_of_faults(plan: Plan, context: RankContext) -> Any:
    vars(tour)["PRIMITIVES"] = FAULTS
    return tour.run(TourPayload(plan.world, root=1), context)


def test_each_fault_is_detected(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp", "devices=3", "batch_size=12", "accelerator=cpu")
    result: Any = on_ranks(plan, tour_of_faults)
    results = [check(*pair, root=1) for pair in zip(FAULTS, result, strict=True)]
    assert results[0] == ["pass", "pass", "fail"]
    assert all("fail" in table for table in results[1:]), "a call that does nothing"
